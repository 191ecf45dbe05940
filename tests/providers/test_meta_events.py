"""What the Cloud API posts: every shape that Meta describes, and what people have seen beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from instances.providers.base import InboundMessage, Notice, StatusEvent, Unreadable
from instances.providers.meta import MetaCloud

META = MetaCloud()
ABOUT = {
    "messaging_product": "whatsapp",
    "metadata": {"display_phone_number": "15550000000", "phone_number_id": "111"},
}
ANA = {"profile": {"name": "Ana"}, "wa_id": "551199990000", "user_id": "BR.123"}
FROM = {"from": "551199990000", "from_user_id": "BR.123", "id": "wamid.I", "timestamp": "1700000000"}
AT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def delivery(*values: dict[str, Any], field: str = "messages") -> dict[str, Any]:
    changes = [{"field": field, "value": value} for value in values]
    return {"object": "whatsapp_business_account", "entry": [{"id": "waba", "changes": changes}]}


def of_status(**fields: Any) -> list[Any]:
    status = {"id": "wamid.X", "status": "sent", "timestamp": "1700000000", "recipient_id": "551199990000"}
    return META.parse(delivery(ABOUT | {"statuses": [status | fields]}))


def of_message(**fields: Any) -> InboundMessage:
    (message,) = META.parse(delivery(ABOUT | {"contacts": [ANA], "messages": [FROM | fields]}))
    assert isinstance(message, InboundMessage)
    return message


@pytest.mark.parametrize("word", ["sent", "delivered", "read", "played"])
def test_reads_a_status_with_our_own_id_and_its_price(word: str) -> None:
    pricing = {"billable": True, "pricing_model": "PMP", "type": "regular", "category": "utility"}

    assert of_status(status=word, biz_opaque_callback_data="m-1", pricing=pricing) == [
        StatusEvent(
            "wamid.X",
            word,
            recipient_id="551199990000",
            message_id="m-1",
            account_id="111",
            extra={"pricing": pricing},
        )
    ]


@pytest.mark.parametrize("word", ["deleted", "warning", "new", None])
def test_ignores_a_status_that_says_nothing(word: Any) -> None:
    assert of_status(status=word) == []


@pytest.mark.parametrize(
    ("number", "code"),
    [(131047, "window_closed"), (131026, "undeliverable"), (131049, "held_back"), (999999, "rejected")],
)
def test_says_why_a_message_failed(number: int, code: str) -> None:
    error = {"code": number, "title": "T", "error_data": {"details": "more than 24 hours"}}

    (event,) = of_status(status="failed", errors=[error])

    assert (event.status, event.code, event.detail) == ("failed", code, f"{number}: more than 24 hours")
    assert event.extra == {"errors": [error]}


def test_takes_a_failure_without_a_reason() -> None:
    (event,) = of_status(status="failed")

    assert (event.status, event.code) == ("failed", "")


def test_reads_a_batch_over_several_numbers_with_duplicates_inside() -> None:
    other = ABOUT | {"metadata": {"phone_number_id": "222"}}
    status = {"id": "wamid.X", "status": "read", "timestamp": 1700000000}

    events = META.parse(
        delivery(
            ABOUT | {"statuses": [status, status]},
            other | {"statuses": [status]},
            ABOUT | {"contacts": [ANA], "messages": [FROM | {"type": "text", "text": {"body": "oi"}}] * 2},
        )
    )

    assert [event.account_id for event in events] == ["111", "111", "222", "111", "111"]


TYPES: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"text": {"body": "oi"}}, "oi"),
    "image": ({"image": {"id": "1", "mime_type": "image/jpeg", "sha256": "x", "caption": "olha"}}, "olha"),
    "video": ({"video": {"id": "1"}}, ""),
    "audio": ({"audio": {"id": "1", "voice": True}}, ""),
    "document": ({"document": {"id": "1", "filename": "nota.pdf"}}, "nota.pdf"),
    "sticker": ({"sticker": {"id": "1", "animated": True}}, ""),
    "location": ({"location": {"latitude": 1.5, "longitude": 2, "name": "Loja"}}, "Loja"),
    "contacts": ({"contacts": [{"name": {"formatted_name": "Bia"}}]}, ""),
    "reaction": ({"reaction": {"message_id": "wamid.X", "emoji": "👍"}}, "👍"),
    "button": ({"button": {"payload": "YES", "text": "Sim"}}, "Sim"),
    "interactive": (
        {"interactive": {"type": "list_reply", "list_reply": {"id": "a", "title": "9 h"}}},
        "9 h",
    ),
    "order": ({"order": {"catalog_id": "1", "text": "por favor"}}, "por favor"),
    "system": ({"system": {"type": "user_changed_number", "body": "mudou", "wa_id": "5511"}}, "mudou"),
    "unsupported": ({"errors": [{"code": 131051}]}, ""),
    "edit": ({"edit": {"original_message_id": "wamid.O", "message": {"text": {"body": "novo"}}}}, "novo"),
    "revoke": ({"revoke": {"original_message_id": "wamid.O"}}, ""),
    "request_welcome": ({}, ""),
    "hologram": ({"hologram": {"x": 1}}, ""),
}


@pytest.mark.parametrize(("kind", "node", "text"), [(k, *v) for k, v in TYPES.items()], ids=TYPES.keys())
def test_keeps_a_message_of_any_type(kind: str, node: dict[str, Any], text: str) -> None:
    message = of_message(type=kind, **node)

    assert (message.kind, message.text, message.at) == (kind, text, AT)
    assert message.raw == FROM | {"type": kind} | node
    assert (message.sender_number, message.user_id, message.sender_name) == (
        "+551199990000",
        "BR.123",
        "Ana",
    )


@pytest.mark.parametrize("kind", ["system", "reaction", "edit", "revoke"])
def test_does_not_take_everything_for_a_word_of_the_person(kind: str) -> None:
    assert not of_message(type=kind).opens_window
    assert of_message(type="text", text={"body": "oi"}).opens_window


def test_keeps_what_a_person_answers() -> None:
    assert of_message(type="text", context={"from": "1", "id": "wamid.X"}).reply_to == "wamid.X"


def test_knows_a_person_without_a_number_by_the_business_scoped_id() -> None:
    contact = {"profile": {"name": "Ana", "username": "ana"}, "user_id": "BR.123"}
    item = {"from_user_id": "BR.123", "id": "wamid.I", "timestamp": "1700000000", "type": "text"}

    (message,) = META.parse(delivery(ABOUT | {"contacts": [contact], "messages": [item]}))

    assert (message.sender_id, message.sender_number, message.sender_name) == ("BR.123", "", "Ana")


def test_takes_a_message_from_before_business_scoped_ids() -> None:
    item = {name: value for name, value in FROM.items() if name != "from_user_id"}

    (message,) = META.parse(delivery(ABOUT | {"messages": [item | {"type": "text"}]}))

    assert (message.sender_id, message.user_id, message.sender_name) == ("551199990000", "", "")


def test_keeps_the_error_that_stands_in_place_of_a_content() -> None:
    errors = [{"code": 131000}]

    (message,) = META.parse(
        delivery(ABOUT | {"messages": [FROM | {"type": "interactive"}], "errors": errors})
    )

    assert message.raw["errors"] == errors


def test_knows_what_the_owner_wrote_on_the_phone() -> None:
    echo = {
        "from": "15550000000",
        "to": "551199990000",
        "id": "wamid.E",
        "type": "text",
        "text": {"body": "olá"},
    }

    (message,) = META.parse(delivery(ABOUT | {"message_echoes": [echo]}, field="smb_message_echoes"))

    assert (message.outgoing, message.sender_number, message.text) == (True, "+551199990000", "olá")
    assert not message.opens_window


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("message_template_status_update", "template_status"),
        ("phone_number_quality_update", "number_quality"),
        ("account_update", "account_update"),
    ],
)
def test_hears_of_the_account_itself(field: str, kind: str) -> None:
    assert META.parse(delivery({"event": "X"}, field=field)) == [
        Notice(kind, {"event": "X"}, business_id="waba")
    ]


@pytest.mark.parametrize("field", ["calls", "history", "group_update", "", "something_new"])
def test_lets_fields_pass_that_it_does_not_know(field: str) -> None:
    assert META.parse(delivery({"anything": 1}, field=field)) == []


@pytest.mark.parametrize("body", [None, [], "x", {}, {"object": "page"}, {"object": ["x"]}])
def test_refuses_what_is_no_delivery(body: Any) -> None:
    with pytest.raises(ValueError, match="not a delivery"):
        META.parse(body)


@pytest.mark.parametrize(
    "entry", [None, {}, [1], [{"changes": 5}], [{"changes": [1, {"field": "messages", "value": []}]}]]
)
def test_finds_nothing_in_what_is_empty_or_odd(entry: Any) -> None:
    assert META.parse({"object": "whatsapp_business_account", "entry": entry}) == []


@pytest.mark.parametrize("odd", [{"id": 5.5}, {"id": ""}, {"id": "w" * 256}, {"id": "a\x00"}, {"id": None}])
def test_says_which_item_cannot_be_kept_and_keeps_the_others(odd: dict[str, Any]) -> None:
    good = {"id": "wamid.X", "status": "sent"}

    events = META.parse(delivery(ABOUT | {"statuses": [good | odd, good]}))

    assert [type(event) for event in events] == [Unreadable, StatusEvent]


@pytest.mark.parametrize("timestamp", ["soon", None, -1, "9" * 30, [], 2**33])
def test_takes_a_message_without_a_time(timestamp: Any) -> None:
    assert of_message(type="text", timestamp=timestamp).at is None
