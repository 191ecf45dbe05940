"""Looking for a message whose outcome is unknown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from instances.providers.base import Account, Answer, Button, Finding, Found, OutboundMessage, ProviderError
from instances.providers.evolution import Evolution
from tests.providers.recordings import EXCHANGES

EVOLUTION = Evolution()
ACCOUNT = Account(name="a1", base_url="http://evolution.test", api_key="key")
NOW = datetime(2026, 11, 29, 15, 30, tzinfo=UTC)
ATTEMPT = datetime(2026, 11, 29, 15, 25, 58, tzinfo=UTC)
JID = "5511987654321@s.whatsapp.net"
STILL_UNKNOWN = Found(Finding.STILL_UNKNOWN)


def message(**fields: Any) -> OutboundMessage:
    known = {"id": "m1", "to": "+5511987654321", "text": "Olá", "attempted_at": ATTEMPT}
    return OutboundMessage(**known | fields)


def record(**changes: Any) -> dict[str, Any]:
    """One stored message: the one we look for, unless told otherwise."""
    key = {"id": "3EB0AA", "fromMe": True, "remoteJid": JID} | changes.pop("key", {})
    stored = {"key": key, "message": {"conversation": "Olá"}, "messageTimestamp": int(ATTEMPT.timestamp())}
    return stored | {"MessageUpdate": []} | changes


def look(*records: dict[str, Any], total: int | None = None, **fields: Any) -> Found:
    page = {"total": len(records) if total is None else total, "pages": 1, "currentPage": 1}
    body = {"messages": {**page, "records": list(records)}}
    return EVOLUTION.find(ACCOUNT, message(**fields), now=NOW).read(Answer(200, body))


def found(status: str = "submitted", **fields: str) -> Found:
    known = {"provider_message_id": "3EB0AA", "recipient_id": JID}
    return Found(Finding.FOUND, status=status, **known | fields)


# --- what is asked ---


def test_asks_for_the_id_it_knows() -> None:
    call = EVOLUTION.find(ACCOUNT, message(provider_message_id="3EB0AA"), now=NOW)

    assert (call.request.method, call.request.url) == ("POST", "http://evolution.test/chat/findMessages/a1")
    assert call.request.json["where"] == {"key": {"id": "3EB0AA"}}
    assert not call.sends


def test_asks_for_what_was_sent_around_the_attempt() -> None:
    where = EVOLUTION.find(ACCOUNT, message(), now=NOW).request.json["where"]

    assert where == {
        "key": {"fromMe": True},
        "messageTimestamp": {"gte": "2026-11-29T15:25:53.000Z", "lte": "2026-11-29T15:27:58.000Z"},
    }


# --- by id ---


def test_finds_a_recorded_message_by_its_id() -> None:
    answer = Answer(200, EXCHANGES[96]["response"])
    sought = message(provider_message_id="3EB02CB7619F8103F8F6BB")

    assert EVOLUTION.find(ACCOUNT, sought, now=NOW).read(answer) == Found(
        Finding.FOUND, "3EB02CB7619F8103F8F6BB", JID, "read"
    )


def test_believes_no_record_with_another_id() -> None:
    assert look(record(), provider_message_id="3EB0BB") == STILL_UNKNOWN


@pytest.mark.parametrize(
    ("updates", "status"),
    [
        ([], "submitted"),
        (["PENDING"], "submitted"),
        (["SERVER_ACK"], "sent"),
        (["READ", "DELIVERY_ACK", "READ"], "read"),
        (["SERVER_ACK", "PLAYED"], "played"),
        (["ERROR", "SERVER_ACK"], "failed"),
        (["DELIVERY_ACK", "ERROR"], "delivered"),
        (["DELETED", "EDITED"], "submitted"),
    ],
)
def test_takes_the_strongest_update(updates: list[str], status: str) -> None:
    stored = record(MessageUpdate=[{"status": word} for word in updates])

    assert look(stored, provider_message_id="3EB0AA") == found(status)


# --- by recipient, text and time ---


def test_finds_the_only_message_that_fits() -> None:
    assert look(record()) == found()


@pytest.mark.parametrize(
    ("to", "jid"),
    [
        ("+5547988887777", "554788887777@s.whatsapp.net"),
        ("+554788887777", "5547988887777@s.whatsapp.net"),
        ("+5511987654321", "5511987654321:12@s.whatsapp.net"),
        ("+14155550100", "14155550100@s.whatsapp.net"),
        ("+5511987654321", "5511987654321"),
    ],
)
def test_knows_a_recipient_in_every_form(to: str, jid: str) -> None:
    assert look(record(key={"remoteJid": jid}), to=to) == found(recipient_id=jid)


def test_knows_a_hidden_recipient_by_the_alternative_or_the_stored_jid() -> None:
    hidden = {"remoteJid": "123456789012345@lid"}

    assert look(record(key=hidden)) == STILL_UNKNOWN
    assert look(record(key=hidden | {"remoteJidAlt": JID})).finding == Finding.FOUND
    assert look(record(key=hidden), recipient_id="123456789012345@lid").finding == Finding.FOUND


@pytest.mark.parametrize(
    "other",
    [
        record(message={"conversation": "Outro texto"}),
        record(key={"remoteJid": "5511911112222@s.whatsapp.net"}),
        record(key={"remoteJid": "5511987654321@g.us"}),
        record(key={"fromMe": False}),
        record(messageTimestamp=int((ATTEMPT - timedelta(seconds=6)).timestamp())),
        record(messageTimestamp=int((ATTEMPT + timedelta(seconds=121)).timestamp())),
        record(messageTimestamp="nonsense"),
        record(key={"id": ""}),
        record(key={"id": None}),
    ],
)
def test_passes_over_what_is_another_message(other: dict[str, Any]) -> None:
    assert look(other) == STILL_UNKNOWN
    assert look(other, record()) == found()


def test_does_not_choose_between_twins() -> None:
    assert look(record(), record(key={"id": "3EB0BB"})) == STILL_UNKNOWN


def test_does_not_choose_where_a_twin_may_be_on_another_page() -> None:
    assert look(record(), total=201) == STILL_UNKNOWN


def test_proves_nothing_by_a_miss() -> None:
    assert look() == STILL_UNKNOWN


def test_knows_a_message_with_buttons_by_the_text_it_became() -> None:
    fields = {"title": "Confirma?", "buttons": [Button("reply", "Sim", "yes")]}

    assert look(record(message={"conversation": "*Confirma?*\n\nOlá\n\n1 – Sim"}), **fields) == found()
    assert look(record(), **fields) == STILL_UNKNOWN


def test_knows_real_buttons_as_a_real_server_stored_them() -> None:
    account = Account(name="a1", base_url="http://evolution.test", api_key="key", buttons_as_text=False)
    sent = EXCHANGES[81]["response"]
    buttons = [Button("reply", "Sim", "yes"), Button("reply", "Nao", "no")]
    sought = message(title="Confirma?", text="Pedido 10", footer="Loja", buttons=buttons)
    body = {"messages": {"total": 1, "records": [sent]}}

    result = EVOLUTION.find(account, sought, now=NOW).read(Answer(200, body))
    assert result.provider_message_id == "3EB071A8B3A0E856764A72"


@pytest.mark.parametrize("body", [None, {}, {"messages": []}, {"messages": {"records": None}}])
def test_refuses_an_answer_that_is_no_list(body: Any) -> None:
    with pytest.raises(ProviderError):
        EVOLUTION.find(ACCOUNT, message(), now=NOW).read(Answer(200, body))


def test_finds_a_message_whose_id_cannot_be_stored() -> None:
    assert look(record(key={"id": "X" * 256})) == found(provider_message_id="")
    assert look(record(key={"remoteJidAlt": JID, "remoteJid": "1" * 141})) == found(recipient_id="")


def test_survives_records_of_the_wrong_shape() -> None:
    records: list[Any] = [None, "x", {"key": None}, {"key": {"id": "3EB0CC", "fromMe": True}}, record()]

    assert look(*records) == found()
