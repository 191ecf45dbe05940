"""Sending and reading messages over the API."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import Environment, Scope
from instances.models import Instance, InstanceStatus
from messaging import forecasting
from messaging.api.serializers import MessageSerializer, shown
from messaging.models import Message, MessageEvent, Status
from pilot.api import InstantField
from tests import factories
from tests.messaging.api.conftest import Api, World
from tests.messaging.test_opt_ins import NUMBER

BODY = {"to": "(11) 99999-0000", "template": "pedido_enviado", "variables": {"nome": "Ana"}}
TEXT = {"to": "+5511999990000", "text": "Olá"}


def error(answer: Any) -> dict[str, Any]:
    """The error of an answer, after a look at its envelope."""
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) <= {"code", "message", "request_id", "fields"}
    assert body["error"]["request_id"] == answer["X-Request-Id"]
    return dict(body["error"])


# --- sending ----------------------------------------------------------------------------------------------


def test_accepts_a_template(world: World) -> None:
    answer = world.api.post("/api/messages", BODY)

    assert answer.status_code == 202
    message = Message.objects.get()
    assert message.content == {"text": "Olá Ana, seu pedido saiu."}
    assert answer["Location"] == f"/api/messages/{message.pk}"
    assert answer["Cache-Control"] == "no-store"
    shown = answer.json()
    assert isinstance(shown.pop("why"), str)
    assert shown.pop("expected_at") == InstantField().to_representation(message.expected_at)
    assert shown == {
        "id": message.pk,
        "position": 1,
        "status": "queued",
        "to": "+5511999990000",
        "instance": "loja",
        "category": "utility",
        "template": "pedido_enviado",
        "urgent": False,
        "environment": "live",
        "deliver_until": message.deliver_until.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "created_at": message.created_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "submitted_at": None,
        "sent_at": None,
        "delivered_at": None,
        "read_at": None,
        "failed_at": None,
        "cancelled_at": None,
        "failure": None,
        "attempts": 0,
        "provider_message_id": None,
        "scheduled_at": None,
        "reference": "",
        "metadata": {},
    }


def test_accepts_a_text_with_everything(world: World) -> None:
    until = timezone.now() + timedelta(minutes=1)
    buttons = [{"kind": "reply", "label": "Sim", "value": "yes"}]
    body = TEXT | {
        "title": "Loja",
        "footer": "Obrigado",
        "buttons": buttons,
        "category": "marketing",
        "instance": "loja",
        "urgent": True,
        "deliver_until": until.isoformat(),
        "metadata": {"order": "1042"},
    }
    answer = world.api.post("/api/messages", body)

    assert answer.status_code == 202
    message = Message.objects.get()
    assert message.content == {"text": "Olá", "title": "Loja", "footer": "Obrigado", "buttons": buttons}
    assert (message.category, message.urgent, message.deliver_until) == ("marketing", True, until)
    shown = answer.json()
    assert (shown["template"], shown["metadata"]) == (None, {"order": "1042"})


@pytest.mark.parametrize(
    "text", ["👩‍👩‍👧‍👦 ok", "مرحبا بالعالم", "‏שלום‎", "e\u0301", "  spaces  ", "{{nome}}", "x" * 4096]
)
def test_keeps_a_text_intact(world: World, text: str) -> None:
    assert world.api.post("/api/messages", TEXT | {"text": text}).status_code == 202
    assert Message.objects.get().content == {"text": text}


def test_waits_on_an_instance_that_is_closed(world: World) -> None:
    factories.make_instance(world.project.tenant, name="fechada", status=InstanceStatus.CLOSED)
    answer = world.api.post("/api/messages", TEXT | {"instance": "fechada"}, Accept_Language="en")
    assert (answer.status_code, answer.json()["why"]) == (202, "The instance is disconnected.")


def test_sends_in_the_environment_of_the_key(world: World) -> None:
    _key, raw = factories.make_key(world.project, environment=Environment.TEST)
    answer = Api(raw).post("/api/messages", TEXT)
    assert answer.json()["environment"] == "test"
    assert world.api.get(answer["Location"]).status_code == 404


def test_answers_the_same_request_with_the_same_message(world: World) -> None:
    first = world.api.post("/api/messages", BODY, Idempotency_Key="order-1042")
    again = world.api.post("/api/messages", dict(reversed(BODY.items())), Idempotency_Key="order-1042")

    assert (first.status_code, again.status_code) == (202, 202)
    assert "Idempotent-Replayed" not in first
    assert again["Idempotent-Replayed"] == "true"
    assert again.json() | {"expected_at": None} == first.json() | {"expected_at": None}
    assert Message.objects.count() == 1


def test_refuses_another_request_under_the_same_key(world: World) -> None:
    world.api.post("/api/messages", BODY, Idempotency_Key="order-1042")
    answer = world.api.post("/api/messages", TEXT, Idempotency_Key="order-1042")
    assert (answer.status_code, error(answer)["code"]) == (422, "idempotency_key_reused")


@pytest.mark.parametrize("key", ["", " ", "two words", "x" * 256, "açaí"])
def test_refuses_an_idempotency_key_that_is_none(world: World, key: str) -> None:
    answer = world.api.post("/api/messages", TEXT, Idempotency_Key=key)
    assert answer.status_code == 400
    assert set(error(answer)["fields"]) == {"Idempotency-Key"}


def test_refuses_whom_nobody_asked(world: World) -> None:
    answer = world.api.post("/api/messages", TEXT | {"to": NUMBER})
    assert (answer.status_code, error(answer)["code"]) == (403, "opt_in_required")
    assert (
        world.api.post("/api/messages", TEXT | {"to": NUMBER, "skip_opt_in_validation": True}).status_code
        == 202
    )


def test_names_the_scope_that_a_key_lacks(world: World) -> None:
    _key, raw = factories.make_key(world.project, scopes=[Scope.MESSAGES_WRITE])
    answer = Api(raw).post("/api/messages", TEXT | {"skip_opt_in_validation": True})
    assert (answer.status_code, error(answer)["code"]) == (403, "forbidden")
    assert "messages:skip_opt_in" in error(answer)["message"]


# --- reading ----------------------------------------------------------------------------------------------


def test_shows_a_message_that_failed(world: World) -> None:
    message = factories.make_message(
        world.project,
        world.instance,
        status=Status.FAILED,
        failed_at=factories.NOW,
        failure_code="rejected",
        failure_detail="bad media",
        attempts=2,
        provider_message_id="3EB0",
    )
    shown = world.api.get(f"/api/messages/{message.pk}").json()
    assert shown["failure"].pop("message")
    assert shown["failure"] == {"code": "rejected", "detail": "bad media"}
    assert (shown["status"], shown["failed_at"], shown["why"]) == (
        "failed",
        "2026-11-29T12:00:00.000000Z",
        None,
    )
    assert (shown["attempts"], shown["provider_message_id"]) == (2, "3EB0")


@pytest.mark.parametrize(
    "identifier", ["nothing", "01a228e8-b0e0-76d8-8e58-6f34379b5939", "%00", "a%00b", "é", "x" * 65, "a b"]
)
@pytest.mark.parametrize("rest", ["", "/events"])
def test_knows_no_message_of_another_name(world: World, identifier: str, rest: str) -> None:
    answer = world.api.get(f"/api/messages/{identifier}{rest}")
    assert (answer.status_code, error(answer)["code"]) == (404, "not_found")


def test_shows_the_timeline_in_the_order_of_what_became_known(world: World) -> None:
    path = world.api.post("/api/messages", TEXT)["Location"]
    message = Message.objects.get()
    MessageEvent.objects.create(
        message=message, tenant=message.tenant, kind="sent", at=factories.NOW, applied=False, detail={"a": 1}
    )
    first, second = world.api.get(f"{path}/events").json()["events"]
    assert (first["kind"], first["applied"], first["detail"]["instance"]) == ("queued", True, "loja")
    assert second == {
        "id": str(MessageEvent.objects.latest("id").pk),
        "at": "2026-11-29T12:00:00.000000Z",
        "kind": "sent",
        "applied": False,
        "detail": {"a": 1},
    }


# --- lists ------------------------------------------------------------------------------------------------


def ids(answer: Any) -> list[str]:
    return [message["id"] for message in answer.json()["messages"]]


def test_lists_the_newest_first(world: World) -> None:
    older = factories.make_message(world.project, world.instance)
    newer = factories.make_message(
        world.project, world.instance, created_at=factories.NOW + timedelta(seconds=1)
    )
    answer = world.api.get("/api/messages")
    assert ids(answer) == [newer.pk, older.pk]
    assert answer.json()["next_cursor"] is None


def test_pages_without_gaps_or_repeats_while_messages_come_in(world: World) -> None:
    made = {
        factories.make_message(
            world.project, world.instance, created_at=factories.NOW + timedelta(seconds=number // 3)
        ).pk
        for number in range(10)  # three at a time share a moment
    }
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = world.api.get("/api/messages", limit=2, **cursor)
        seen += ids(page)
        factories.make_message(world.project, world.instance, created_at=timezone.now())
        if page.json()["next_cursor"] is None:
            break
        cursor = {"cursor": page.json()["next_cursor"]}
    assert len(seen) == len(set(seen))
    assert set(seen) == made


def test_shows_a_last_page_that_is_just_full(world: World) -> None:
    for _number in range(2):
        factories.make_message(world.project, world.instance)
    assert world.api.get("/api/messages", limit=2).json()["next_cursor"] is None


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ({"status": "failed"}, {"failed"}),
        ({"status": "read"}, set()),
        ({"template": "pedido_enviado"}, {"template"}),
        ({"template": "outro"}, set()),
        ({"instance": "outra"}, {"instance"}),
        ({"to": "(47) 98888-7777"}, {"to"}),
        ({"to": "+554788887777"}, {"to"}),
        ({"created_after": "2026-11-29T12:00:10Z"}, {"later"}),
        ({"created_before": "2026-11-29T11:00:00Z"}, {"earlier"}),
        ({"created_after": "2026-11-29T08:00:00-03:00", "created_before": "2026-11-29T12:00:00Z"}, set()),
        ({"status": "queued", "instance": "outra"}, {"instance"}),
        ({"status": "failed", "instance": "outra"}, set()),
    ],
)
def test_filters(world: World, parameters: dict[str, str], found: set[str]) -> None:
    def make(instance: Any = world.instance, **fields: Any) -> str:
        return factories.make_message(world.project, instance, **fields).pk

    made = {
        make(status=Status.FAILED, failure_code="rejected"): "failed",
        make(template_version=world.template.current_version): "template",
        make(factories.make_instance(world.project.tenant, name="outra")): "instance",
        make(to=NUMBER): "to",
        make(created_at=factories.NOW + timedelta(seconds=10)): "later",
        make(created_at=factories.NOW - timedelta(days=1)): "earlier",
    }
    assert {made[pk] for pk in ids(world.api.get("/api/messages", **parameters))} == found


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("limit", "0"),
        ("limit", "201"),
        ("limit", "ten"),
        ("status", "lost"),
        ("to", "12"),
        ("cursor", "!"),
        ("cursor", "eA"),
        ("cursor", "AA"),
        ("cursor", "_w"),
        ("created_after", "yesterday"),
        ("created_after", "2026-11-29T12:00:00"),
        ("template", "a\x00"),
        ("colour", "red"),
    ],
)
def test_names_the_parameter_that_is_wrong(world: World, field: str, value: str) -> None:
    answer = world.api.get("/api/messages", **{field: value})
    assert answer.status_code == 400
    assert set(error(answer)["fields"]) == {field}


def test_does_not_take_a_cursor_of_somebody_else(world: World) -> None:
    for _number in range(2):
        factories.make_message(world.project, world.instance)
    cursor = world.api.get("/api/messages", limit=1).json()["next_cursor"]
    assert world.stranger.get("/api/messages", cursor=cursor).status_code == 400


def test_asks_the_database_no_more_for_many_than_for_one(
    world: World, django_assert_max_num_queries: Any
) -> None:
    for _number in range(20):
        factories.make_message(world.project, world.instance, template_version=world.template.current_version)
    with django_assert_max_num_queries(3):
        assert len(ids(world.api.get("/api/messages"))) == 20


def test_accepts_with_few_statements(world: World, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(13):
        assert world.api.post("/api/messages", BODY, Idempotency_Key="k").status_code == 202


# --- forecasts --------------------------------------------------------------------------------------------


def queue(world: World, count: int) -> None:
    """Messages that wait on an instance with a pace of 38 s."""
    Instance.objects.filter(pk=world.instance.pk).update(pace_least_seconds=30, pace_most_seconds=46)
    for _ in range(count):
        factories.make_message(
            world.project, world.instance, deliver_until=timezone.now() + timedelta(hours=1)
        )
    forecasting.forget()


def test_says_when_a_waiting_message_goes_out(world: World) -> None:
    queue(world, 2)

    accepted = world.api.post("/api/messages", TEXT).json()
    shown = world.api.get(f"/api/messages/{accepted['id']}").json()

    assert (accepted["position"], shown["position"]) == (3, 3)
    wait = datetime.fromisoformat(accepted["expected_at"]) - datetime.fromisoformat(accepted["created_at"])
    assert timedelta(seconds=76) <= wait < timedelta(seconds=78)


def test_refuses_at_once_what_would_be_late_when_asked_to(world: World) -> None:
    queue(world, 100)

    answer = world.api.post("/api/messages", TEXT | {"refuse_if_late": True}, Accept_Language="en")

    assert (answer.status_code, error(answer)["code"]) == (409, "would_be_late")
    assert "100 messages go before it" in error(answer)["message"]
    assert Message.objects.count() == 100


def test_accepts_what_would_be_late_when_not_asked(world: World) -> None:
    queue(world, 100)

    assert world.api.post("/api/messages", TEXT).status_code == 202


def test_nobody_can_say_while_the_instance_is_closed(world: World) -> None:
    Instance.objects.update(status=InstanceStatus.CLOSED)

    accepted = world.api.post("/api/messages", TEXT)
    refused = world.api.post("/api/messages", TEXT | {"refuse_if_late": True})

    assert (accepted.status_code, accepted.json()["expected_at"]) == (202, None)
    assert (refused.status_code, error(refused)["code"]) == (409, "would_be_late")


@pytest.mark.parametrize("status", Status.values)
def test_shows_a_message_as_its_serializer_does(world: World, status: str) -> None:
    failure = {"failure_code": "expired"} if status == "failed" else {}
    made = factories.make_message(
        world.project, world.instance, status=status, metadata={"a": "1"}, **failure
    )
    message = Message.objects.select_related("instance__lane", "instance__tenant").get(pk=made.pk)
    assert shown(message) == MessageSerializer(message).data
