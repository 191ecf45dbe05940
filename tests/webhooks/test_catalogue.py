"""The event catalogue says what really is delivered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from instances.status import NEWS
from messaging.models import MessageEvent
from tests.factories import NOW, make_message, make_project, make_template
from tests.webhooks.tellings import happen
from webhooks import payloads
from webhooks.catalogue import ENVELOPE, TYPES, EventType
from webhooks.models import WebhookEvent

ASKED_FOR = {
    *(
        f"message.{kind}"
        for kind in (
            "queued",
            "held",
            "submitted",
            "sent",
            "delivered",
            "read",
            "played",
            "failed",
            "cancelled",
            "received",
        )
    ),
    "optin.changed",
    *NEWS.values(),
    "usage.threshold",
    "endpoint.disabled",
}


def check(schema: dict[str, Any], value: Any) -> None:
    Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(value)


def test_lists_what_can_be_told() -> None:
    assert set(TYPES) >= ASKED_FOR
    assert any(name.startswith("campaign.") for name in TYPES)


@pytest.mark.parametrize("about", TYPES.values(), ids=list(TYPES))
def test_every_example_is_what_its_schema_says(about: EventType) -> None:
    Draft202012Validator.check_schema(about.schema)
    check(about.schema, json.loads(json.dumps(about.example)))
    assert set(about.example) == set(about.properties)
    assert about.description.endswith(".")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("kind", "detail", "own"),
    [
        ("queued", {}, {"requeued": None}),
        (
            "queued",
            {"why": "retry", "code": "throttled", "reason": "429", "next_attempt_at": NOW.isoformat()},
            {"requeued": {"why": "retry", "code": "throttled", "next_attempt_at": NOW.isoformat()}},
        ),
        (
            "held",
            {"gate": "instance", "reason": "closed"},
            {"held": {"gate": "instance", "reason": "closed", "until": None}},
        ),
        ("submitted", {}, {}),
        ("sent", {}, {}),
        ("delivered", {}, {}),
        ("read", {}, {}),
        ("played", {}, {}),
        ("cancelled", {}, {}),
        (
            "failed",
            {"code": "131026", "reason": "Message undeliverable"},
            {"failure": {"code": "undeliverable", "detail": "Message undeliverable"}},
        ),
        (
            "failed",
            {"gate": "deadline", "code": "expired"},
            {"failure": {"code": "expired", "detail": ""}},
        ),
    ],
)
def test_tells_of_a_message_as_the_schema_says(
    kind: str, detail: dict[str, Any], own: dict[str, Any]
) -> None:
    project = make_project(slug="crm")
    message = make_message(
        project,
        template_version=make_template(project).current_version,
        metadata={"order": "1042"},
        provider_message_id="3EB0",
    )
    (row,) = happen(message, kind, **detail)
    row = MessageEvent.objects.get(pk=row.pk)

    data = payloads.of_message(row)

    check(TYPES[f"message.{kind}"].schema, data)
    assert (
        data
        == {
            "message_id": message.pk,
            "status": kind,
            "to": "+5511999990000",
            "instance": message.instance.name,
            "category": "utility",
            "template": "pedido_enviado",
            "provider_message_id": "3EB0",
            "metadata": {"order": "1042"},
        }
        | own
    )


@pytest.mark.django_db
@pytest.mark.parametrize("environment", ["live", "test", ""])
def test_the_envelope_is_what_its_schema_says(environment: str) -> None:
    project = make_project(slug="crm") if environment else None
    event = WebhookEvent(
        name="evt_m1",
        type="message.read",
        project=project,
        environment=environment,
        data=dict(TYPES["message.read"].example),
        at=NOW,
    )

    body = payloads.body(event, version="1")

    told = json.loads(body)
    check(ENVELOPE, told)
    assert body == payloads.body(event, version="1")
    assert (told["id"], told["type"], told["timestamp"]) == (
        "evt_m1",
        "message.read",
        "2026-11-29T12:00:00.000Z",
    )
    assert told["environment"] == (environment or None)
    assert told["project"] == ("crm" if environment else None)
