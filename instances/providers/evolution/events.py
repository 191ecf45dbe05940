"""What Evolution API posts to a webhook, in our words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from instances.providers import bounds
from instances.providers.base import (
    ConnectionEvent,
    Event,
    InboundMessage,
    Pairing,
    StatusEvent,
    Unreadable,
)

# SERVER_ACK is also Evolution's default for an update without a status: not required, overruled by ERROR.
# The last four are the words of the WhatsApp Cloud API channel.
STATUSES = {
    "PENDING": "submitted",
    "SERVER_ACK": "sent",
    "DELIVERY_ACK": "delivered",
    "READ": "read",
    "PLAYED": "played",
    "ERROR": "failed",
    "SENT": "sent",
    "DELIVERED": "delivered",
    "FAILED": "failed",
}
UNDELIVERABLE = "undeliverable"

CONNECTIONS = {"open": "open", "connecting": "connecting", "close": "closed", "refused": "closed"}

# The status codes with which a connection ends for good.
CLOSE_REASONS = {
    401: "logged_out",
    402: "payment_required",
    403: "forbidden",
    406: "not_acceptable",
    428: "pairing_expired",
}

# Where a message has its text, after its wrappers are off.
TEXT_PATHS = (
    ("conversation",),
    ("extendedTextMessage", "text"),
    ("interactiveMessage", "body", "text"),
    ("imageMessage", "caption"),
    ("videoMessage", "caption"),
    ("documentMessage", "caption"),
    ("templateButtonReplyMessage", "selectedDisplayText"),
    ("buttonsResponseMessage", "selectedDisplayText"),
    ("interactiveResponseMessage", "body", "text"),
    ("listResponseMessage", "title"),
    ("reactionMessage", "text"),
)
WRAPPERS = ("viewOnceMessage", "viewOnceMessageV2", "ephemeralMessage", "documentWithCaptionMessage")

PEOPLE = ("@s.whatsapp.net", "@c.us", "@lid")
E164_DIGITS = re.compile(r"[0-9]{1,15}")

Reader = Callable[[Mapping[str, Any]], Event | None]


def parse(body: Any) -> list[Event]:
    """The events of one delivery, with an Unreadable for each item that cannot be kept.

    Raises ValueError when it is not an Evolution delivery at all.
    """
    if not isinstance(body, dict) or not isinstance(body.get("event"), str):
        raise ValueError("not an event of Evolution API")
    read = READERS.get(body["event"])
    if read is None:
        return []
    data = bounds.storable(body.get("data"))
    items = data if isinstance(data, list) else [data]
    events = [_read(read, item) for item in items]
    return [event for event in events if event is not None]


def text_of(message: Any) -> str:
    """The text a person reads in a WhatsApp message body; empty for a body without text."""
    if not isinstance(message, dict):
        return ""
    for wrapper in WRAPPERS:
        if wrapper in message:
            return text_of(_at(message, (wrapper, "message")))
    found = (_at(message, path) for path in TEXT_PATHS)
    return next((text for text in found if isinstance(text, str) and text), "")


def moment(timestamp: Any) -> datetime | None:
    """A messageTimestamp: unix seconds, as a number, as text, or as the halves of a 64-bit integer.

    None for what is none or does not fit 32 bits: the years 1 and 9999 exist, but not in every time zone.
    """
    if isinstance(timestamp, dict):
        timestamp = timestamp.get("low")
    try:
        seconds = int(timestamp)
    except (TypeError, ValueError, OverflowError):
        return None
    return datetime.fromtimestamp(seconds, UTC) if 0 <= seconds < 2**32 else None


def number_of(jid: str) -> str:
    """The E.164 number of a JID, without its device; empty when it has no number in it (@lid, groups)."""
    user, _, server = jid.partition("@")
    digits = user.partition(":")[0]
    return f"+{digits}" if server in {"s.whatsapp.net", "c.us", ""} and E164_DIGITS.fullmatch(digits) else ""


def pairing(data: Mapping[str, Any]) -> Pairing:
    """A QR object. {"count": 0} is one that has no code yet."""
    return Pairing(
        qr_code=str(data.get("code") or ""),
        pairing_code=str(data.get("pairingCode") or ""),
        count=bounds.count(data.get("count")),
    )


# --- one reader for each event ----------------------------------------------------------------------------


def _read(reader: Reader, item: Any) -> Event | None:
    try:
        return reader(item if isinstance(item, dict) else {})
    except (
        Exception
    ) as error:  # whatever it is about this item, the others of its delivery are not lost with it
        return Unreadable(f"{type(error).__name__}: {error}")


def _sent(data: Mapping[str, Any]) -> StatusEvent | None:
    """A message of ours was handed to the socket. The event may be faster than the answer to the send."""
    key = _mapping(data, "key")
    if not key.get("id"):
        return None
    return StatusEvent(
        provider_message_id=_id(key["id"]),
        status="submitted",
        recipient_id=key.get("remoteJid", ""),
        text=text_of(data.get("message")),
    )


def _updated(data: Mapping[str, Any]) -> StatusEvent | None:
    """A receipt. The id is `keyId`: `messageId` is a key of Evolution's own database."""
    status = STATUSES.get(str(data.get("status")))
    if status is None or not data.get("keyId") or data.get("fromMe") is False:
        return None
    return StatusEvent(
        provider_message_id=_id(data["keyId"]),
        status=status,
        code=UNDELIVERABLE if status == "failed" else "",
        recipient_id=data.get("remoteJid", ""),
    )


def _received(data: Mapping[str, Any]) -> InboundMessage | None:
    """A message from a person. Groups, broadcasts and what the owner writes on the phone are not."""
    key = _mapping(data, "key")
    jid = str(key.get("remoteJid", ""))
    if key.get("fromMe") is not False or not key.get("id") or not jid.endswith(PEOPLE):
        return None
    return InboundMessage(
        provider_message_id=_id(key["id"]),
        sender_id=_id(jid, most=bounds.ADDRESS_LENGTH),
        # A hidden number (@lid) may come with the real one beside it.
        sender_number=number_of(jid) or number_of(str(key.get("remoteJidAlt") or "@")),
        sender_name=str(data.get("pushName") or ""),
        kind=str(data.get("messageType") or "unknown"),
        text=text_of(data.get("message")),
        at=moment(data.get("messageTimestamp")),
        raw=data,
    )


def _connection(data: Mapping[str, Any]) -> ConnectionEvent | None:
    state = CONNECTIONS.get(str(data.get("state")))
    if state is None:
        return None
    if state != "open":
        reason = _reason(data.get("statusReason")) if state == "closed" else ""
        return ConnectionEvent(state, reason=reason)
    owner = bounds.identifier(data.get("wuid"), most=bounds.ADDRESS_LENGTH)
    return ConnectionEvent(
        state, owner_id=owner, number=number_of(owner), profile_name=str(data.get("profileName") or "")
    )


def _qr(data: Mapping[str, Any]) -> Pairing:
    code = data.get("qrcode")
    return pairing(code) if isinstance(code, dict) else Pairing(exhausted=True)


def _closed(data: Mapping[str, Any]) -> ConnectionEvent | None:
    if data.get("status") != "closed":
        return None
    return ConnectionEvent("closed", reason=_reason(data.get("disconnectionReasonCode")))


def _logged_out(_data: Mapping[str, Any]) -> ConnectionEvent:
    return ConnectionEvent("closed", reason=CLOSE_REASONS[401])


def _removed(_data: Mapping[str, Any]) -> ConnectionEvent:
    return ConnectionEvent("removed")


READERS: Mapping[str, Reader] = {
    "send.message": _sent,
    "messages.update": _updated,
    "messages.upsert": _received,
    "connection.update": _connection,
    "qrcode.updated": _qr,
    "status.instance": _closed,
    "logout.instance": _logged_out,
    "remove.instance": _removed,
}


def _id(said: Any, *, most: int = bounds.ID_LENGTH) -> str:
    """An id without which there is nothing to keep. Raises ValueError."""
    found = bounds.identifier(said, most=most)
    if not found:
        raise ValueError(f"{said!r:.60} is no id of at most {most} characters")
    return found


def _reason(code: Any) -> str:
    return CLOSE_REASONS.get(code, f"code_{code}") if isinstance(code, int) else ""


def _mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _at(message: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        message = message.get(name) if isinstance(message, dict) else None
    return message
