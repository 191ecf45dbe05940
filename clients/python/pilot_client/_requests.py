"""What goes into a request: no field that was not given, and moments as RFC 3339 in UTC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TypedDict
from urllib.parse import quote

Instant = datetime | str


class _To(TypedDict):
    to: str


class NewMessage(_To, total=False):
    """One message of a batch: a `template` with its `variables`, a `text`, or a `content` of another kind."""

    template: str
    variables: Mapping[str, str | int | float]
    text: str
    title: str
    footer: str
    buttons: Sequence[Mapping[str, str]]
    content: Mapping[str, Any]
    category: str
    instance: str
    urgent: bool
    scheduled_at: Instant
    deliver_until: Instant
    skip_opt_in_validation: bool
    refuse_if_late: bool
    metadata: Mapping[str, str]
    reference: str


def given(**values: Any) -> dict[str, Any]:
    """Those of the values that are not None, as JSON knows them. Raises ValueError for a moment without an offset."""
    return {name: plain(value, name=name) for name, value in values.items() if value is not None}


def plain(value: Any, *, name: str) -> Any:
    """A value as JSON knows it."""
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise ValueError(f"{name} has no offset from UTC: use an aware datetime")
    return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def path(*parts: object) -> str:
    """The parts of an address, each of them safe: a number's `+` or a name's `/` stays what it is."""
    return "/".join(quote(str(part), safe="") for part in parts)
