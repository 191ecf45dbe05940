"""Health means progress: what each process last did, not whether it lives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from pilot.models import Heartbeat

# How old a process's last progress may be. A worker's heartbeat travels every 10 s through queue, pool and database.
STALE = {"worker": timedelta(seconds=30), "beat": timedelta(seconds=20), "consume": timedelta(seconds=20)}
FORGOTTEN = timedelta(days=1)


def beat(*, name: str, kind: str, detail: Mapping[str, Any] | None = None) -> None:
    """Notes that a process made progress now."""
    values = {"kind": kind, "progressed_at": timezone.now(), "detail": dict(detail or {})}
    Heartbeat.objects.update_or_create(pk=name, defaults=values)


def report(*, now: datetime) -> dict[str, Any]:
    """Every known process with the age of its progress; `ok` when each part of the product has one that moves.

    `missing` names the parts that have none: kinds of processes and, of the consumers, their loops.
    """
    rows = Heartbeat.objects.filter(progressed_at__gt=now - FORGOTTEN).order_by("kind", "name")
    processes = [_process(row, now) for row in rows]
    moving = [process for process in processes if process["status"] == "ok"]
    missing = set(STALE) - {process["kind"] for process in moving}
    if "consume" not in missing:
        missing |= _loops(processes) - _loops(moving)
    return {"status": "degraded" if missing else "ok", "missing": sorted(missing), "processes": processes}


def _loops(processes: Iterable[Mapping[str, Any]]) -> set[str]:
    """What the consumers among them do: `consume.<loop>`, on whichever host."""
    names = {process["name"].partition("@")[0] for process in processes if process["kind"] == "consume"}
    return {name for name in names if "." in name}


def _process(row: Heartbeat, now: datetime) -> dict[str, Any]:
    age = now - row.progressed_at
    limit = STALE.get(row.kind, timedelta(seconds=30))
    return {
        "name": row.name,
        "kind": row.kind,
        "status": "ok" if age <= limit else "stale",
        "progress_age_seconds": round(age.total_seconds(), 1),
        "detail": row.detail,
    }
