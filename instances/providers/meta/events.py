"""What WhatsApp's Cloud API posts to a webhook, in our words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from instances.providers import bounds
from instances.providers.base import Event, InboundMessage, Notice, StatusEvent
from instances.providers.graph.errors import REFUSED, TABLE, code_of, words
from instances.providers.graph.payloads import (
    changes,
    entries,
    id_of,
    items,
    mapping,
    moment,
    number_of,
    read,
)

OBJECT = "whatsapp_business_account"
STATUSES = {
    "sent": "sent",
    "delivered": "delivered",
    "read": "read",
    "played": "played",
    "failed": "failed",
}
# What is kept of a status beside what it says.
KEPT = ("pricing", "conversation", "errors", "recipient_participant_id")

# Where each type of message has the words that a person reads first.
TEXT_PATHS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "text": (("text", "body"),),
    "image": (("image", "caption"),),
    "video": (("video", "caption"),),
    "document": (("document", "caption"), ("document", "filename")),
    "button": (("button", "text"),),
    "interactive": (
        ("interactive", "button_reply", "title"),
        ("interactive", "list_reply", "title"),
        ("interactive", "nfm_reply", "body"),
    ),
    "reaction": (("reaction", "emoji"),),
    "location": (("location", "name"), ("location", "address")),
    "system": (("system", "body"),),
    "order": (("order", "text"),),
    "edit": (("edit", "message", "text", "body"),),
}
# These are no messages of the person, or it is not known whether WhatsApp takes them for one.
NOT_OPENING = frozenset({"system", "reaction", "edit", "revoke"})

NOTICES = {
    "message_template_status_update": "template_status",
    "message_template_quality_update": "template_quality",
    "template_category_update": "template_category",
    "phone_number_quality_update": "number_quality",
    "phone_number_name_update": "number_name",
    "account_update": "account_update",
    "account_alerts": "account_alert",
    "business_capability_update": "capability",
}

Value = Mapping[str, Any]


def parse(body: Any) -> list[Event]:
    """The events of one delivery, with an Unreadable for each item that cannot be kept; unknown fields say nothing.

    Raises ValueError when it is no delivery of the Cloud API at all.
    """
    found: list[Event] = []
    for entry in entries(body, of=OBJECT):
        business_id = bounds.identifier(entry.get("id"), most=bounds.ADDRESS_LENGTH)
        for field, value in changes(entry):
            found += _change(field, value, business_id)
    return found


def _change(field: str, value: Value, business_id: str) -> list[Event]:
    if field == "messages":
        account_id = bounds.identifier(
            mapping(value.get("metadata")).get("phone_number_id"), most=bounds.ADDRESS_LENGTH
        )
        return [
            *_all(_status, value, "statuses", account_id),
            *_all(_received, value, "messages", account_id),
        ]
    if field == "smb_message_echoes":
        account_id = str(mapping(value.get("metadata")).get("phone_number_id") or "")
        return _all(_echo, value, "message_echoes", account_id)
    if field in NOTICES:
        return [Notice(NOTICES[field], value, business_id=business_id)]
    return []


def _all(reader: Callable[..., Event | None], value: Value, name: str, account_id: str) -> list[Event]:
    return [event for item in items(value.get(name)) for event in read(reader, item, value, account_id)]


def _status(item: Value, _value: Value, account_id: str) -> StatusEvent | None:
    status = STATUSES.get(str(item.get("status")))
    if status is None:
        return None
    errors = items(item.get("errors"))
    failed = status == "failed"
    return StatusEvent(
        provider_message_id=id_of(item.get("id")),
        status=status,
        code=TABLE.get(code_of(errors[0]), REFUSED).code if failed and errors else "",
        detail=words(errors[0]) if failed and errors else "",
        recipient_id=item.get("recipient_id") or item.get("recipient_user_id") or "",
        message_id=bounds.identifier(item.get("biz_opaque_callback_data"), most=64),
        account_id=account_id,
        extra={name: item[name] for name in KEPT if item.get(name)},
    )


def _received(item: Value, value: Value, account_id: str) -> InboundMessage:
    kind = str(item.get("type") or "unknown")
    number, user_id = _sender(item)
    return InboundMessage(
        provider_message_id=id_of(item.get("id")),
        sender_id=id_of(item.get("from") or user_id, most=bounds.ADDRESS_LENGTH),
        sender_number=number,
        sender_name=_name(item, value),
        kind=kind,
        text=text_of(item),
        at=moment(item.get("timestamp")),
        raw=_with_errors(item, value),
        user_id=user_id,
        reply_to=bounds.identifier(mapping(item.get("context")).get("id"), most=bounds.ID_LENGTH),
        account_id=account_id,
        opens_window=kind not in NOT_OPENING and not item.get("group_id"),
    )


def _echo(item: Value, _value: Value, account_id: str) -> InboundMessage:
    """What the owner wrote on the phone, where the number is shared with the WhatsApp Business app."""
    person = id_of(item.get("to"), most=bounds.ADDRESS_LENGTH)
    return InboundMessage(
        provider_message_id=id_of(item.get("id")),
        sender_id=person,
        sender_number=number_of(person),
        sender_name="",
        kind=str(item.get("type") or "unknown"),
        text=text_of(item),
        at=moment(item.get("timestamp")),
        raw=item,
        account_id=account_id,
        outgoing=True,
    )


def _sender(item: Value) -> tuple[str, str]:
    """The number, empty for a person who hides it, and the business-scoped id, empty before 2026."""
    user_id = bounds.identifier(item.get("from_user_id"), most=bounds.ADDRESS_LENGTH)
    return number_of(item.get("from")), user_id


def _name(item: Value, value: Value) -> str:
    """The profile name among the contacts of the delivery; a change of number has no contacts."""
    for contact in items(value.get("contacts")):
        same_number = contact.get("wa_id") and contact.get("wa_id") == item.get("from")
        same_user = contact.get("user_id") and contact.get("user_id") == item.get("from_user_id")
        if same_number or same_user:
            return str(mapping(contact.get("profile")).get("name") or "")
    return ""


def _with_errors(item: Value, value: Value) -> Value:
    """The message, with the errors that stand beside it when it came without its content."""
    kind = str(item.get("type"))
    return item if kind in item or not value.get("errors") else {**item, "errors": value["errors"]}


def text_of(item: Value) -> str:
    """The words of a message; empty for a type that has none."""
    paths = TEXT_PATHS.get(str(item.get("type")), ())
    found = (_at(item, path) for path in paths)
    return next((text for text in found if isinstance(text, str) and text), "")


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
