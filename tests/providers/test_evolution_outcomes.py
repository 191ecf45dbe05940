"""What the answer to a send means for the message: one row for each thing Evolution is known to say."""

from __future__ import annotations

from typing import Any

import pytest

from instances.providers.base import (
    AMBIGUOUS,
    DISCONNECTED,
    INSTANCE_REMOVED,
    MISCONFIGURED,
    NOT_ON_WHATSAPP,
    REJECTED_PAYLOAD,
    THROTTLED,
    Account,
    Answer,
    HookConfig,
    OutboundMessage,
    Outcome,
    ProviderError,
    Receipt,
)
from instances.providers.evolution import Evolution

ACCOUNT = Account(name="loja", base_url="http://evolution.test", api_key="key")
MESSAGE = OutboundMessage(id="m1", to="+5511987654321", text="Olá")
KEY = {"remoteJid": "5511987654321@s.whatsapp.net", "fromMe": True, "id": "3EB0AA"}
PRISMA = "PrismaClientKnownRequestError: \nInvalid `prisma.message.create()` invocation"
META_ERROR = {"message": "(#131030) Recipient not in list", "type": "OAuthException", "code": 131030}


def envelope(message: Any, status: int = 400) -> dict[str, Any]:
    return {"status": status, "error": "whatever", "response": {"message": message}}


def read(status: int, body: Any, headers: dict[str, str] | None = None) -> Receipt:
    return Evolution().send(ACCOUNT, MESSAGE).read(Answer(status, body, headers or {}))


TAKEN = [
    pytest.param(201, {"key": KEY, "status": "PENDING"}, "3EB0AA", KEY["remoteJid"], id="handed over"),
    pytest.param(200, {"key": KEY}, "3EB0AA", KEY["remoteJid"], id="any 2xx with an id"),
    pytest.param(201, {"key": {"id": "uuid", "remoteJid": "5511"}}, "uuid", "5511", id="bare number"),
    pytest.param(201, {"key": {"id": "uuid"}}, "uuid", "", id="no recipient"),
    pytest.param(201, {"key": {**KEY, "id": "X" * 256}}, "", KEY["remoteJid"], id="an id nobody can store"),
    pytest.param(201, {"key": {**KEY, "id": "a\x00b"}}, "", KEY["remoteJid"], id="an id with NUL"),
    pytest.param(201, {"key": {**KEY, "remoteJid": "1" * 141}}, "3EB0AA", "", id="a recipient too long"),
    pytest.param(400, envelope([PRISMA]), "", "", id="sent, but saving failed"),
    pytest.param(400, envelope([f"Error: {PRISMA}"]), "", "", id="the same, wrapped"),
]

REFUSED = [
    pytest.param(400, envelope([['instance requires property "text"']]), REJECTED_PAYLOAD, id="schema"),
    pytest.param(400, envelope(["Text is required"]), REJECTED_PAYLOAD, id="deliberate"),
    pytest.param(400, envelope([{**KEY, "exists": False}]), NOT_ON_WHATSAPP, id="not on WhatsApp"),
    pytest.param(400, envelope(["[object Object]"]), REJECTED_PAYLOAD, id="inner error lost"),
    pytest.param(413, None, REJECTED_PAYLOAD, id="too large"),
    pytest.param(201, META_ERROR, REJECTED_PAYLOAD, id="an error of Meta's as a success"),
    pytest.param(201, {"error": META_ERROR}, REJECTED_PAYLOAD, id="the same, one level down"),
]

DOWN = [
    pytest.param(400, envelope(["Error: Connection Closed"]), DISCONNECTED, id="closed, number cached"),
    pytest.param(500, envelope("Connection Closed", 500), DISCONNECTED, id="closed, number not cached"),
    pytest.param(
        500,
        envelope("Cannot read properties of undefined (reading 'onWhatsApp')", 500),
        DISCONNECTED,
        id="never connected",
    ),
    pytest.param(
        400,
        envelope(["TypeError: Cannot read properties of undefined (reading 'id')"]),
        DISCONNECTED,
        id="connecting",
    ),
    pytest.param(200, {"instance": {"state": "close"}}, DISCONNECTED, id="state instead of message"),
    pytest.param(201, {"state": "connecting"}, DISCONNECTED, id="the same, flat"),
    pytest.param(
        404, envelope(['The "loja" instance does not exist'], 404), INSTANCE_REMOVED, id="no such instance"
    ),
    pytest.param(
        404, envelope(["Cannot POST /message/sendText/loja"], 404), MISCONFIGURED, id="no such route"
    ),
    pytest.param(404, None, MISCONFIGURED, id="not Evolution"),
    pytest.param(401, envelope("Unauthorized", 401), MISCONFIGURED, id="wrong key"),
    pytest.param(403, envelope(["Forbidden"], 403), MISCONFIGURED, id="forbidden"),
    pytest.param(
        503,
        {"error": "service not activated", "code": "LICENSE_REQUIRED", "message": "..."},
        MISCONFIGURED,
        id="no licence",
    ),
    pytest.param(301, None, MISCONFIGURED, id="redirect"),
]

THROTTLING = [
    pytest.param(429, None, {"retry-after": "30"}, 30.0, id="429 with a time"),
    pytest.param(429, None, {"retry-after": "9" * 400}, 3600.0, id="429 for longer than the world stands"),
    pytest.param(429, None, {"retry-after": "-30"}, None, id="429 with a negative time"),
    pytest.param(429, None, {}, None, id="429"),
    pytest.param(429, None, {"retry-after": "Sun, 29 Nov 2026 15:00:00 GMT"}, None, id="429 with a date"),
    pytest.param(400, envelope(["Error: rate-overlimit"]), {}, None, id="throttled by WhatsApp"),
]

UNCLEAR = [
    pytest.param(201, None, id="empty body"),
    pytest.param(201, {}, id="empty object"),
    pytest.param(201, {"key": {}}, id="key without id"),
    pytest.param(201, {"key": "3EB0"}, id="key of the wrong type"),
    pytest.param(201, [KEY], id="body of the wrong type"),
    pytest.param(200, {"error": True, "message": "[object Object]"}, id="an error as a success"),
    pytest.param(400, envelope(["Error: Timed Out"]), id="WhatsApp did not answer"),
    pytest.param(400, envelope(["Error: write EPIPE"]), id="an exception nobody foresaw"),
    pytest.param(400, None, id="400 without a body"),
    pytest.param(400, {}, id="400 with nothing in it"),
    pytest.param(500, envelope("Something else", 500), id="500 without a verdict"),
    pytest.param(500, envelope(PRISMA, 500), id="the database failed, before or after"),
    pytest.param(502, None, id="502"),
    pytest.param(503, None, id="503 of a proxy"),
    pytest.param(504, None, id="504"),
    pytest.param(418, None, id="418"),
]


@pytest.mark.parametrize(("status", "body", "message_id", "recipient"), TAKEN)
def test_takes_the_message_for_submitted(status: int, body: Any, message_id: str, recipient: str) -> None:
    assert read(status, body) == Receipt(message_id, recipient, "submitted")


@pytest.mark.parametrize(("status", "body", "code"), REFUSED)
def test_rejects_for_good(status: int, body: Any, code: str) -> None:
    with pytest.raises(ProviderError) as raised:
        read(status, body)
    assert (raised.value.outcome, raised.value.code) == (Outcome.REJECTED, code)


@pytest.mark.parametrize(("status", "body", "code"), DOWN)
def test_waits_for_the_instance(status: int, body: Any, code: str) -> None:
    with pytest.raises(ProviderError) as raised:
        read(status, body)
    assert (raised.value.outcome, raised.value.code) == (Outcome.INSTANCE_DOWN, code)


@pytest.mark.parametrize(("status", "body", "headers", "retry_after"), THROTTLING)
def test_tries_again_later(
    status: int, body: Any, headers: dict[str, str], retry_after: float | None
) -> None:
    with pytest.raises(ProviderError) as raised:
        read(status, body, headers)
    assert (raised.value.outcome, raised.value.code) == (Outcome.RETRY, THROTTLED)
    assert raised.value.retry_after == retry_after


@pytest.mark.parametrize(("status", "body"), UNCLEAR)
def test_does_not_know(status: int, body: Any) -> None:
    with pytest.raises(ProviderError) as raised:
        read(status, body)
    assert (raised.value.outcome, raised.value.code) == (Outcome.UNKNOWN, AMBIGUOUS)


def test_explains_in_the_provider_s_words() -> None:
    with pytest.raises(ProviderError) as raised:
        read(400, envelope([["text is too long", "number is odd"]]))
    assert raised.value.detail == "text is too long; number is odd"
    with pytest.raises(ProviderError) as raised:
        read(502, None)
    assert raised.value.detail == "HTTP 502 without an explanation"


def test_keeps_explanations_short() -> None:
    with pytest.raises(ProviderError) as raised:
        read(400, envelope(["x" * 5000]))
    assert len(raised.value.detail) == 300


@pytest.mark.parametrize("events", [None, "SEND_MESSAGE", 7, [{"a": 1}], {}])
def test_a_webhook_with_odd_events_is_one_for_none(events: Any) -> None:
    read_hook = Evolution().get_hook(ACCOUNT).read

    hook = read_hook(Answer(200, {"enabled": True, "url": "http://pilot.test", "events": events}))

    assert hook == HookConfig(url="http://pilot.test", events=[])
