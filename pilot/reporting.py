"""What /health tells beside the processes: streams, places in them, and open alerts. Each app adds its own.

A module `reporting` of an app lists REPORTS, a name and a function of the time that gives JSON, and STREAMS, the names
of the streams that it writes or reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import structlog
from django.apps import apps
from redis.exceptions import RedisError, ResponseError

from pilot.maintenance import brought
from pilot.models import Alert, StreamPlace
from pilot.outbox import EventRow, numbered
from pilot.redis import client

log = structlog.get_logger(__name__)

Report = tuple[str, Callable[[datetime], Any]]
ALERTS_SHOWN = 50


def reports(now: datetime) -> dict[str, Any]:
    """Every app's part of the report, by name."""
    return {name: read(now) for name, read in brought("reporting", "REPORTS")}


def alerts(now: datetime) -> list[dict[str, Any]]:
    """The oldest alerts that are open."""
    rows = Alert.objects.filter(recovered_at=None).order_by("id")[:ALERTS_SHOWN]
    return [
        {"kind": row.kind, "subject": row.subject, "open_seconds": _seconds(now - row.raised_at)}
        for row in rows
    ]


def events(_now: datetime) -> dict[str, dict[str, int]]:
    """Of each table of events: the position that was given last, and how far each reader is behind it."""
    found = {}
    for model in apps.get_models():
        if issubclass(model, EventRow):
            last = numbered(model)
            found[model._meta.label_lower] = {"numbered": last} | dict(_behind(model, last))
    return found


def _behind(model: type[EventRow], last: int) -> Iterator[tuple[str, int]]:
    prefix = f"{model._meta.label_lower}."
    for place in StreamPlace.objects.filter(name__startswith=prefix).order_by("name"):
        reader = place.name.removeprefix(prefix)
        if reader != "numbered":
            yield f"behind_{reader}", max(last - place.position, 0)


def streams(now: datetime) -> dict[str, Any]:
    """Each stream's length, and of each group what it has not read and not confirmed. Empty while Redis is away."""
    try:
        return {name: _stream(name, now) for name in brought("reporting", "STREAMS")}
    except (RedisError, OSError) as error:
        log.warning("reporting.redis_away", error=str(error))
        return {}


def _stream(name: str, now: datetime) -> dict[str, Any]:
    try:
        groups = client().xinfo_groups(name)
    except ResponseError:  # nobody has written to it yet
        groups = []
    return {
        "length": client().xlen(name),
        "groups": {_text(group["name"]): _group(name, group, now) for group in groups},
    }


def _group(stream: str, group: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """`lag` is None where Redis does not know it: after the stream was trimmed."""
    oldest = client().xpending(stream, group["name"])["min"] if group["pending"] else None
    age = now.timestamp() - int(_text(oldest).partition("-")[0]) / 1000 if oldest else 0
    return {"lag": group["lag"], "pending": group["pending"], "oldest_pending_seconds": round(max(age, 0), 1)}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _seconds(span: Any) -> float:
    return float(round(span.total_seconds(), 1))


REPORTS: list[Report] = [("alerts", alerts), ("events", events), ("streams", streams)]
STREAMS: list[str] = []
