"""What Evolution posts to a webhook, in our words: every recorded delivery, and the oddities."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from instances.providers.base import ConnectionEvent, Event, InboundMessage, Pairing, StatusEvent, Unreadable
from instances.providers.evolution import Evolution, events
from tests.providers.recordings import DELIVERIES

JID = "5511987654321@s.whatsapp.net"


def parse(event: str, data: Any) -> list[Event]:
    return Evolution().parse({"event": event, "instance": "a1", "data": data})


def receipt(**changes: Any) -> dict[str, Any]:
    known = {"keyId": "3EB0AA", "remoteJid": JID, "fromMe": True, "status": "READ", "messageId": "cuid"}
    return known | changes


def inbound(message: Any = None, **key: Any) -> dict[str, Any]:
    return {
        "key": {"remoteJid": JID, "fromMe": False, "id": "3A01"} | key,
        "pushName": "Maria",
        "message": {"conversation": "SIM"} if message is None else message,
        "messageType": "conversation",
        "messageTimestamp": 1795966000,
    }


# --- recorded deliveries ---

RECORDED = {
    "send.message": StatusEvent,
    "messages.update": StatusEvent,
    "messages.upsert": InboundMessage,
    "connection.update": ConnectionEvent,
    "qrcode.updated": Pairing,
    "status.instance": ConnectionEvent,
    "logout.instance": ConnectionEvent,
    "remove.instance": ConnectionEvent,
}


@pytest.mark.parametrize("delivery", DELIVERIES, ids=lambda delivery: delivery["body"]["event"])
def test_reads_every_recorded_delivery(delivery: dict[str, Any]) -> None:
    body = delivery["body"]
    said = Evolution().parse(body)

    own = body["event"] == "messages.upsert" and body["data"]["key"]["fromMe"]
    expected = RECORDED.get(body["event"])
    assert [type(event) for event in said] == ([expected] if expected and not own else [])


def test_reads_the_recorded_deliveries_as_what_happened() -> None:
    said = [event for delivery in DELIVERIES for event in Evolution().parse(delivery["body"])]

    statuses = Counter(event.status for event in said if isinstance(event, StatusEvent))
    assert statuses == {"submitted": 19, "sent": 2, "delivered": 2, "read": 1, "failed": 1}
    assert [event.text for event in said if isinstance(event, InboundMessage)] == ["SIM", "Sim"]
    states = Counter(event.state for event in said if isinstance(event, ConnectionEvent))
    assert set(states) == {"connecting", "open", "closed", "removed"}


# --- receipts ---


def test_reads_what_was_sent_with_its_text() -> None:
    data = {"key": {"id": "3EB0AA", "remoteJid": JID, "fromMe": True}, "message": {"conversation": "Olá"}}

    assert parse("send.message", data) == [StatusEvent("3EB0AA", "submitted", recipient_id=JID, text="Olá")]


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("PENDING", "submitted"),
        ("SERVER_ACK", "sent"),
        ("DELIVERY_ACK", "delivered"),
        ("READ", "read"),
        ("PLAYED", "played"),
        ("SENT", "sent"),
        ("DELIVERED", "delivered"),
    ],
)
def test_reads_a_receipt(word: str, status: str) -> None:
    assert parse("messages.update", receipt(status=word)) == [StatusEvent("3EB0AA", status, recipient_id=JID)]


@pytest.mark.parametrize("word", ["ERROR", "FAILED"])
def test_reads_a_failure_with_its_code(word: str) -> None:
    assert parse("messages.update", receipt(status=word)) == [
        StatusEvent("3EB0AA", "failed", code="undeliverable", recipient_id=JID)
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "DELETED"},
        {"status": "EDITED"},
        {"status": None},
        {"keyId": None},
        {"keyId": ""},
        {"fromMe": False},
    ],
)
def test_passes_over_updates_that_are_no_receipts(changes: dict[str, Any]) -> None:
    assert parse("messages.update", receipt(**changes)) == []


def test_reads_a_list_of_updates() -> None:
    said = parse("messages.update", [receipt(), receipt(keyId="3EB0BB"), "junk", None])

    assert [event.provider_message_id for event in said if isinstance(event, StatusEvent)] == [
        "3EB0AA",
        "3EB0BB",
    ]


@pytest.mark.parametrize("odd", [receipt(keyId="X" * 256), receipt(keyId="a\x00b"), receipt(keyId=["x"])])
def test_says_which_updates_cannot_be_kept(odd: dict[str, Any]) -> None:
    good = StatusEvent("3EB0AA", "read", recipient_id=JID)

    before, unreadable, after = parse("messages.update", [receipt(), odd, receipt()])

    assert (before, after) == (good, good)
    assert isinstance(unreadable, Unreadable)
    assert "no id" in unreadable.reason


def test_an_item_that_breaks_its_reader_does_not_take_the_others_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fragile(item: dict[str, Any]) -> StatusEvent:
        return StatusEvent(item["keyId"], "read")

    monkeypatch.setitem(events.READERS, "messages.update", fragile)

    assert parse("messages.update", [{}, {"keyId": "3EB0AA"}]) == [
        Unreadable("KeyError: 'keyId'"),
        StatusEvent("3EB0AA", "read"),
    ]


def test_leaves_out_a_recipient_that_cannot_be_kept() -> None:
    assert parse("messages.update", receipt(remoteJid="1" * 141)) == [StatusEvent("3EB0AA", "read")]


# --- messages from people ---


def test_reads_a_message_from_a_person() -> None:
    data = inbound()

    assert parse("messages.upsert", data) == [
        InboundMessage(
            provider_message_id="3A01",
            sender_id=JID,
            sender_number="+5511987654321",
            sender_name="Maria",
            kind="conversation",
            text="SIM",
            at=datetime(2026, 11, 29, 15, 26, 40, tzinfo=UTC),
            raw=data,
        )
    ]


@pytest.mark.parametrize(
    ("key", "number"),
    [
        ({"remoteJid": "123@lid"}, ""),
        ({"remoteJid": "123@lid", "remoteJidAlt": JID}, "+5511987654321"),
        ({"remoteJid": "123@lid", "remoteJidAlt": "456@lid"}, ""),
        ({"remoteJid": "123@lid", "remoteJidAlt": None}, ""),
        ({"remoteJid": "123@lid", "remoteJidAlt": "1" * 16 + "@s.whatsapp.net"}, ""),
        ({"remoteJid": "123@lid", "remoteJidAlt": "٣٤٥@s.whatsapp.net"}, ""),
        ({"remoteJid": "5511987654321:7@s.whatsapp.net"}, "+5511987654321"),
        ({"remoteJid": "5511987654321@c.us"}, "+5511987654321"),
    ],
)
def test_reads_the_number_of_a_person(key: dict[str, Any], number: str) -> None:
    (event,) = parse("messages.upsert", inbound(**key))

    assert isinstance(event, InboundMessage)
    assert (event.sender_id, event.sender_number) == (key["remoteJid"], number)


@pytest.mark.parametrize(
    "key",
    [
        {"fromMe": True},
        {"fromMe": None},
        {"id": ""},
        {"remoteJid": "120363000000000000@g.us", "participant": JID},
        {"remoteJid": "status@broadcast"},
        {"remoteJid": "120363@newsletter"},
        {"remoteJid": None},
    ],
)
def test_passes_over_what_no_person_sent_to_the_account(key: dict[str, Any]) -> None:
    assert parse("messages.upsert", inbound(**key)) == []


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"extendedTextMessage": {"text": "a"}}, "a"),
        ({"imageMessage": {"caption": "a"}}, "a"),
        ({"imageMessage": {}}, ""),
        ({"audioMessage": {}}, ""),
        ({"templateButtonReplyMessage": {"selectedId": "yes", "selectedDisplayText": "Sim"}}, "Sim"),
        ({"buttonsResponseMessage": {"selectedDisplayText": "Sim"}}, "Sim"),
        ({"interactiveResponseMessage": {"body": {"text": "Sim"}}}, "Sim"),
        ({"listResponseMessage": {"title": "Sim"}}, "Sim"),
        ({"ephemeralMessage": {"message": {"extendedTextMessage": {"text": "a"}}}}, "a"),
        ({"viewOnceMessage": {"message": {"imageMessage": {"caption": "a"}}}}, "a"),
        ({"viewOnceMessage": None}, ""),
        ({"conversation": {"not": "text"}}, ""),
        ("junk", ""),
    ],
)
def test_reads_the_text_that_a_person_reads(message: Any, text: str) -> None:
    (event,) = parse("messages.upsert", inbound(message))

    assert isinstance(event, InboundMessage)
    assert event.text == text


@pytest.mark.parametrize(
    ("timestamp", "at"),
    [
        ("1795966000", datetime(2026, 11, 29, 15, 26, 40, tzinfo=UTC)),
        ({"low": 1795966000, "high": 0}, datetime(2026, 11, 29, 15, 26, 40, tzinfo=UTC)),
        (None, None),
        ("soon", None),
        (10**30, None),
        (-1, None),
        (2**32, None),
        (float("inf"), None),
    ],
)
def test_reads_a_time_in_every_form(timestamp: Any, at: datetime | None) -> None:
    (event,) = parse("messages.upsert", inbound() | {"messageTimestamp": timestamp})

    assert isinstance(event, InboundMessage)
    assert event.at == at


@pytest.mark.parametrize("key", [{"id": "X" * 256}, {"id": ["x"]}, {"remoteJid": "1" * 140 + JID}])
def test_says_which_messages_cannot_be_kept(key: dict[str, Any]) -> None:
    (event,) = parse("messages.upsert", inbound(**key))

    assert isinstance(event, Unreadable)


def test_keeps_a_message_without_what_cannot_be_stored() -> None:
    (event,) = parse("messages.upsert", inbound({"conversation": "a\x00b\ud800"}) | {"pushName": "\x00Maria"})

    assert isinstance(event, InboundMessage)
    assert (event.text, event.sender_name) == ("a\ufffdb\ufffd", "\ufffdMaria")
    assert event.raw["message"] == {"conversation": "a\ufffdb\ufffd"}


# --- the connection ---


@pytest.mark.parametrize(
    ("event", "data", "expected"),
    [
        ("connection.update", {"state": "connecting", "statusReason": 200}, ConnectionEvent("connecting")),
        (
            "connection.update",
            {"state": "open", "wuid": JID, "profileName": "Loja", "statusReason": 200},
            ConnectionEvent("open", owner_id=JID, number="+5511987654321", profile_name="Loja"),
        ),
        ("connection.update", {"state": "open", "profileName": None}, ConnectionEvent("open")),
        (
            "connection.update",
            {"state": "close", "statusReason": 401},
            ConnectionEvent("closed", "logged_out"),
        ),
        (
            "connection.update",
            {"state": "close", "statusReason": 403},
            ConnectionEvent("closed", "forbidden"),
        ),
        ("connection.update", {"state": "close", "statusReason": 499}, ConnectionEvent("closed", "code_499")),
        ("connection.update", {"state": "close"}, ConnectionEvent("closed")),
        (
            "connection.update",
            {"state": "refused", "statusReason": 428, "wuid": JID},
            ConnectionEvent("closed", "pairing_expired"),
        ),
        (
            "status.instance",
            {"status": "closed", "disconnectionReasonCode": 401},
            ConnectionEvent("closed", "logged_out"),
        ),
        ("logout.instance", None, ConnectionEvent("closed", "logged_out")),
        ("remove.instance", None, ConnectionEvent("removed")),
        (
            "qrcode.updated",
            {"qrcode": {"instance": "a1", "pairingCode": None, "code": "2@x", "base64": "data:"}},
            Pairing("2@x"),
        ),
        ("qrcode.updated", {"qrcode": {"code": "2@x", "count": 10**9}}, Pairing("2@x", count=32767)),
        ("qrcode.updated", {"qrcode": {"code": "2@x", "count": -1}}, Pairing("2@x")),
        ("connection.update", {"state": "open", "wuid": "1" * 141}, ConnectionEvent("open")),
        ("qrcode.updated", {"message": "QR code limit reached", "statusCode": 500}, Pairing(exhausted=True)),
    ],
)
def test_reads_news_of_the_connection(event: str, data: Any, expected: Event) -> None:
    assert parse(event, data) == [expected]


@pytest.mark.parametrize(
    ("event", "data"),
    [
        ("connection.update", {"state": "dancing"}),
        ("connection.update", None),
        ("status.instance", {"status": "opened"}),
        ("send.message", {"key": None}),
        ("send.message", "junk"),
        ("messages.edited", {"key": {"id": "3EB0AA"}}),
        ("contacts.upsert", [{"remoteJid": JID}]),
        ("event.of.tomorrow", {"a": 1}),
    ],
)
def test_passes_over_what_it_has_no_use_for(event: str, data: Any) -> None:
    assert parse(event, data) == []


@pytest.mark.parametrize("body", [None, [], "text", 7, {}, {"event": None}, {"event": 1, "data": {}}])
def test_refuses_what_is_no_event_at_all(body: Any) -> None:
    with pytest.raises(ValueError, match="not an event"):
        Evolution().parse(body)
