"""Notices processes that make no progress, from the heartbeats that they write while they do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pilot.alerts import open_subjects, raise_alert, recover
from pilot.alerts.kinds import KindName
from pilot.health import FORGOTTEN, STALE
from pilot.models import Heartbeat

# How long after its last progress counts as stale it is alerted of.
GRACE = timedelta(minutes=1)
# A process that watches has just started itself, with all the others perhaps: their heartbeats are from before.
SETTLED_SECONDS = 60.0

KINDS: Mapping[str, KindName] = {
    "worker": "worker_not_consuming",
    "beat": "beat_not_ticking",
    "consume": "consumer_not_consuming",
}

_started = time.monotonic()


@dataclass(frozen=True, slots=True)
class Group:
    """Processes that do the same, so that one that moves is enough: all workers, or all loops of one name."""

    kind: str
    name: str
    progressed_at: datetime


def watch_processes(now: datetime) -> int:
    """Alerts of groups in which nothing moves, and of their recovery. Returns how many stand still.

    Only those that were seen within a day: what was taken out of service is forgotten.
    """
    if time.monotonic() - _started < SETTLED_SECONDS:
        return 0
    still = 0
    groups = _groups(now)
    for group in groups:
        silence = now - group.progressed_at
        if silence <= STALE[group.kind] + GRACE:
            recover(KINDS[group.kind], group.name, now=now)
            continue
        still += 1
        detail = {"name": group.name.removeprefix("consume."), "minutes": int(silence.total_seconds() // 60)}
        raise_alert(KINDS[group.kind], group.name, detail=detail, now=now)
    _forget({(KINDS[group.kind], group.name) for group in groups}, now)
    return still


def _groups(now: datetime) -> list[Group]:
    rows = Heartbeat.objects.filter(kind__in=KINDS, progressed_at__gt=now - FORGOTTEN)
    newest: dict[tuple[str, str], datetime] = {}
    for kind, name, progressed_at in rows.values_list("kind", "name", "progressed_at"):
        key = kind, name.partition("@")[0] if kind == "consume" else kind
        newest[key] = max(newest.get(key, progressed_at), progressed_at)
    return [Group(kind, name, at) for (kind, name), at in sorted(newest.items())]


def _forget(known: set[tuple[KindName, str]], now: datetime) -> None:
    """Ends alerts of groups that were taken out of service."""
    for kind in KINDS.values():
        for subject in open_subjects(kind):
            if (kind, subject) not in known:
                recover(kind, subject, now=now, silently=True)
