"""Reading Graph's webhooks: nothing in them is taken for granted, because a 2xx ends what Meta would repeat."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from instances.providers import bounds
from instances.providers.base import Event, Unreadable

E164_DIGITS = re.compile(r"[0-9]{1,15}")
LATEST = 2**32


def mapping(value: Any) -> Mapping[str, Any]:
    """The object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; none for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def entries(body: Any, *, of: str) -> Iterator[Mapping[str, Any]]:
    """The entries of one delivery. Raises ValueError when it is not one of the object `of`."""
    if not isinstance(body, dict) or body.get("object") != of:
        raise ValueError(f"not a delivery of {of}")
    yield from items(bounds.storable(body).get("entry"))


def changes(entry: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The changes of an entry as (field, value); Instagram also writes a single one into the entry itself."""
    found = items(entry.get("changes"))
    if "field" in entry:
        found = [*found, entry]
    for change in found:
        yield str(change.get("field", "")), mapping(change.get("value"))


def read(reader: Callable[..., Event | None], *arguments: Any) -> list[Event]:
    """What a reader makes of an item; Unreadable where it cannot, so that the others are not lost with it."""
    try:
        event = reader(*arguments)
    except Exception as error:
        return [Unreadable(f"{type(error).__name__}: {error}")]
    return [event] if event is not None else []


def id_of(said: Any, *, most: int = bounds.ID_LENGTH) -> str:
    """An id without which there is nothing to keep. Raises ValueError."""
    found = bounds.identifier(said, most=most)
    if not found:
        raise ValueError(f"{said!r:.60} is no id of at most {most} characters")
    return found


def moment(said: Any, *, per_second: int = 1) -> datetime | None:
    """Unix time as a number or as text; None for what is none."""
    try:
        seconds = int(said) / per_second
    except (TypeError, ValueError, OverflowError):
        return None
    return datetime.fromtimestamp(seconds, UTC) if 0 <= seconds < LATEST else None


def number_of(digits: Any) -> str:
    """E.164 of the digits that WhatsApp calls a person by; empty for what is none."""
    text = str(digits or "").removeprefix("+")
    return f"+{text}" if E164_DIGITS.fullmatch(text) else ""
