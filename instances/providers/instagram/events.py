"""What Instagram posts to a webhook, in our words.

Direct messages come in `messaging` with times in milliseconds, comments in `changes` or in the entry itself. Everything
that the account sends comes back as an echo, also what its owner wrote in the app.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from instances.providers import bounds
from instances.providers.base import Event, InboundMessage, StatusEvent
from instances.providers.graph.payloads import changes, entries, id_of, items, mapping, moment, read

OBJECT = "instagram"
COMMENTS = frozenset({"comments", "live_comments"})

Item = Mapping[str, Any]


def parse(body: Any) -> list[Event]:
    """The events of one delivery, with an Unreadable for each item that cannot be kept; the unknown says nothing.

    Raises ValueError when it is no delivery of Instagram's at all.
    """
    found: list[Event] = []
    for entry in entries(body, of=OBJECT):
        account_id = bounds.identifier(entry.get("id"), most=bounds.ADDRESS_LENGTH)
        for item in items(entry.get("messaging")):
            for reader in _readers(item):
                found += read(reader, item, account_id)
        for field, value in changes(entry):
            if field in COMMENTS:
                found += read(_comment, value, account_id, _seconds(entry.get("time")))
    return found


def _readers(item: Item) -> Iterator[Any]:
    message = mapping(item.get("message"))
    if message.get("is_echo"):
        yield from (_echo, _written)
    elif message:
        yield _direct
    for name, reader in (("read", _seen), ("reaction", _reaction), ("postback", _postback)):
        if isinstance(item.get(name), dict):
            yield reader


def _direct(item: Item, account_id: str) -> InboundMessage:
    """A message from a person; one that was taken back is news of its own."""
    message = mapping(item.get("message"))
    mid, deleted = id_of(message.get("mid")), bool(message.get("is_deleted"))
    return _inbound(
        item,
        account_id,
        id=f"{mid}/deleted"[: bounds.ID_LENGTH] if deleted else mid,
        kind="deleted" if deleted else _kind(message),
        text=str(message.get("text") or ""),
        reply_to=mid if deleted else str(mapping(message.get("reply_to")).get("mid") or ""),
        opens_window=not deleted,
    )


def _kind(message: Item) -> str:
    if message.get("is_unsupported"):
        return "unsupported"
    attachments = items(message.get("attachments"))
    return str(attachments[0].get("type") or "file") if attachments else "text"


def _postback(item: Item, account_id: str) -> InboundMessage:
    postback = mapping(item.get("postback"))
    title = str(postback.get("title") or "")
    return _inbound(item, account_id, id=postback.get("mid"), kind="postback", text=title, opens_window=True)


def _reaction(item: Item, account_id: str) -> InboundMessage:
    """It has no id of its own: the message, the person and the time make one."""
    reaction = mapping(item.get("reaction"))
    mid, person = id_of(reaction.get("mid")), mapping(item.get("sender")).get("id")
    emoji = str(reaction.get("emoji") or "") if reaction.get("action") != "unreact" else ""
    own = f"{mid[:180]}/{person}/{item.get('timestamp')}"
    return _inbound(item, account_id, id=own, kind="reaction", text=emoji, reply_to=mid)


def _inbound(
    item: Item,
    account_id: str,
    *,
    id: Any,
    kind: str,
    text: str,
    reply_to: str = "",
    opens_window: bool = False,
) -> InboundMessage:
    return InboundMessage(
        provider_message_id=id_of(id),
        sender_id=id_of(mapping(item.get("sender")).get("id"), most=bounds.ADDRESS_LENGTH),
        sender_number="",
        sender_name="",
        kind=kind,
        text=text,
        at=moment(item.get("timestamp"), per_second=1000),
        raw=item,
        reply_to=bounds.identifier(reply_to, most=bounds.ID_LENGTH),
        account_id=account_id,
        opens_window=opens_window,
    )


def _echo(item: Item, account_id: str) -> StatusEvent:
    """The account sent it: through us, whose answer it may overtake, or in another program."""
    message = mapping(item.get("message"))
    return StatusEvent(
        provider_message_id=id_of(message.get("mid")),
        status="submitted",
        recipient_id=mapping(item.get("recipient")).get("id") or "",
        text=str(message.get("text") or ""),
        account_id=account_id,
    )


def _written(item: Item, account_id: str) -> InboundMessage:
    """The same as a message of the account's own, for when it was not sent through us."""
    message = mapping(item.get("message"))
    return InboundMessage(
        provider_message_id=id_of(message.get("mid")),
        sender_id=id_of(mapping(item.get("recipient")).get("id"), most=bounds.ADDRESS_LENGTH),
        sender_number="",
        sender_name="",
        kind=_kind(message),
        text=str(message.get("text") or ""),
        at=moment(item.get("timestamp"), per_second=1000),
        raw=item,
        account_id=account_id,
        outgoing=True,
    )


def _seen(item: Item, account_id: str) -> StatusEvent:
    mid = id_of(mapping(item.get("read")).get("mid"))
    return StatusEvent(provider_message_id=mid, status="read", account_id=account_id)


def _comment(value: Item, account_id: str, at: datetime | None) -> InboundMessage:
    """A comment; the account's own ones come too, and must not be answered."""
    author = mapping(value.get("from"))
    own = account_id in {author.get("id"), author.get("self_ig_scoped_id")}
    return InboundMessage(
        provider_message_id=id_of(value.get("id")),
        sender_id=id_of(author.get("id"), most=bounds.ADDRESS_LENGTH),
        sender_number="",
        sender_name=str(author.get("username") or ""),
        kind="comment",
        text=str(value.get("text") or ""),
        at=at,
        raw=value,
        reply_to=bounds.identifier(value.get("parent_id"), most=bounds.ID_LENGTH),
        account_id=account_id,
        outgoing=own,
    )


def _seconds(time: Any) -> datetime | None:
    """An entry's time: in seconds for comments, in milliseconds elsewhere, and not always as documented."""
    return moment(time) or moment(time, per_second=1000)
