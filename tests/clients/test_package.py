"""The Python client stands alone, says all that the API takes, and checks webhooks as Pilot signs them."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pilot_client
import pytest
from django.conf import settings
from pilot_client import InvalidSignature, Message, NewMessage, verify
from pilot_client._resources.messages import Messages

from messaging.api.serializers import MessageSerializer, SubmissionSerializer
from tests.factories import NOW
from webhooks import signing

PACKAGE = Path(settings.BASE_DIR) / "clients/python/pilot_client"
BODY = (
    b'{"id": "evt_1", "type": "message.read", "timestamp": "2026-11-29T12:00:00.000Z", "environment": "live",'
    b' "project": "crm", "sample": false, "data": {"message_id": "m-1"}, "new": 1}'
)
SECRET = signing.new_secret()


# --- the package ------------------------------------------------------------------------------------------


def test_imports_nothing_but_httpx_and_itself() -> None:
    allowed = {*sys.stdlib_module_names, "httpx", "pilot_client"}
    assert {name for file in PACKAGE.rglob("*.py") for name in _imports(file)} <= allowed


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield str(node.module).partition(".")[0]


def test_offers_what_it_names() -> None:
    assert [name for name in pilot_client.__all__ if not hasattr(pilot_client, name)] == []


def test_takes_every_field_of_a_message() -> None:
    fields = set(SubmissionSerializer().get_fields())
    parameters = set(inspect.signature(Messages.send._flow).parameters)
    assert parameters - {"self", "idempotency_key"} == fields
    assert set(NewMessage.__annotations__) | {"to"} == fields


def test_shows_every_field_of_a_message() -> None:
    fields = set(MessageSerializer().get_fields())
    assert set(Message.__dataclass_fields__) - {"raw"} == fields


# --- webhooks ---------------------------------------------------------------------------------------------


def test_takes_what_pilot_signed() -> None:
    event = _verified()
    assert (event.id, event.type, event.data) == ("evt_1", "message.read", {"message_id": "m-1"})
    assert event.timestamp == NOW
    assert event.raw["new"] == 1


def test_takes_a_call_while_secrets_are_rotated() -> None:
    assert _verified(secrets=[signing.new_secret(), SECRET])
    assert _verified(secret=[signing.new_secret(), SECRET])


def test_takes_headers_in_any_case() -> None:
    headers = {name.title(): value for name, value in _headers().items()}
    assert verify(BODY, headers, SECRET, now=NOW.timestamp())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"body": BODY + b" "}, "no_match"),
        ({"secret": signing.new_secret()}, "no_match"),
        ({"secret": []}, "no_match"),
        ({"webhook-id": "evt_2"}, "no_match"),
        ({"webhook-timestamp": str(int(NOW.timestamp()) + 1)}, "no_match"),
        ({"webhook-signature": "v1,é"}, "no_match"),
        ({"webhook-signature": ""}, "headers_missing"),
        ({"webhook-timestamp": "yesterday"}, "timestamp_unreadable"),
        ({"webhook-timestamp": "\u0661\u0662"}, "timestamp_unreadable"),
        ({"later": 301}, "too_old"),
        ({"later": -301}, "too_new"),
    ],
)
def test_refuses_a_call(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidSignature) as raised:
        _verified(**change)
    assert raised.value.reason == reason


@pytest.mark.parametrize("later", [-300, 300])
def test_takes_a_call_by_clocks_that_differ_a_little(later: int) -> None:
    assert _verified(later=later)


def _verified(
    *, body: bytes = BODY, secret: Any = SECRET, secrets: Any = (SECRET,), later: int = 0, **headers: str
) -> pilot_client.WebhookEvent:
    return verify(body, _headers(secrets) | headers, secret, now=NOW.timestamp() + later)


def _headers(secrets: Any = (SECRET,)) -> dict[str, str]:
    return signing.headers("evt_1", BODY, secrets=secrets, now=NOW)
