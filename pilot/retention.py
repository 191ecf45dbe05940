"""Retention: once a day, rows that nobody needs any more go, by the policy of settings.RETENTION_DAYS.

Each app lists in its module `retention`, under STEPS, what of its own may go: a table whose ids grow with time takes
one line with pruned(), anything else is a Step. Batches are small transactions with pauses between them, so that
whoever sends never waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Model, QuerySet
from django.utils import timezone

from pilot import maintenance
from pilot.maintenance import SEEN, Batches, Clock, Step
from pilot.models import Alert, MaintenanceKind, MaintenanceRun

WITHIN = timedelta(hours=2)
PAGE = 1000
# After a batch the database rests for as long as the batch took; at most this long.
LONGEST_PAUSE_SECONDS = 1.0


def run(*, clock: Clock = timezone.now) -> MaintenanceRun | None:
    """A round now. None when another process is at it."""
    return maintenance.run(MaintenanceKind.RETENTION, steps(), within=WITHIN, clock=clock)


def steps() -> list[Step]:
    """What the apps bring in their modules `retention`; Pilot's own is at the end of this one."""
    return maintenance.brought("retention", "STEPS")


def cutoff(name: str, now: datetime) -> datetime | None:
    """What is older may go; None when the policy is to keep it for ever (0 days)."""
    days = settings.RETENTION_DAYS[name]
    return now - timedelta(days=days) if days else None


def pruned(name: str, rows: Callable[[], QuerySet[Any]], *, at: str = "at") -> Step:
    """Deletes the old among `rows()`, a table whose ids grow with time. `at` is the column with a row's age.

    `rows` may leave out what must stay whatever its age is; it is asked anew for each batch. Needs no index but the
    primary key: the oldest are the first, and the walk ends at the first page without an old row.
    """

    def batches(now: datetime) -> Batches:
        before = cutoff(name, now)
        return _prune(name, rows, at, before) if before else iter(())

    return Step(name, batches)


def _prune(name: str, rows: Callable[[], QuerySet[Any]], at: str, before: datetime) -> Batches:
    after = 0
    while page := _page(rows().model, at, after):
        started = time.monotonic()
        old = [pk for pk, moment in page if moment < before]
        if not old:
            return
        with transaction.atomic():
            deleted, _by_model = rows().filter(pk__in=old).delete()
        yield {name: deleted, SEEN: len(page)}
        after = page[-1][0]
        rest(started)


def _page(model: type[Model], at: str, after: int) -> list[tuple[int, datetime]]:
    following = model._default_manager.filter(pk__gt=after).order_by("pk")
    return list(following.values_list("pk", at)[:PAGE])


def rest(started: float) -> None:
    """Leaves the database to others, for as long as the batch took that began at `started` (monotonic seconds)."""
    maintenance.pause(min(time.monotonic() - started, LONGEST_PAUSE_SECONDS))


STEPS = (
    pruned("alerts", lambda: Alert.objects.filter(recovered_at__isnull=False), at="raised_at"),
    pruned("maintenance_runs", MaintenanceRun.objects.all, at="started_at"),
)
