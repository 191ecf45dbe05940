"""The full reconciler: once an hour everything is looked at that the quick ones should have put right by then.

What it puts right is therefore news: it is counted, and more than a few of it is an alert.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from pilot import alerts, maintenance
from pilot.maintenance import Clock, Step
from pilot.models import MaintenanceKind, MaintenanceRun, Outcome

WITHIN = timedelta(minutes=30)
# Younger than this, something may still be on its way to whoever handles it first.
SETTLES_WITHIN = timedelta(minutes=1)


def run(*, clock: Clock = timezone.now) -> MaintenanceRun | None:
    """A round now. None when another process is at it. More than RECONCILER_ALERT_ABOVE changes raise an alert."""
    done = maintenance.run(MaintenanceKind.RECONCILE, sweeps(), within=WITHIN, clock=clock)
    if done:
        _tell(done)
    return done


def _tell(done: MaintenanceRun) -> None:
    subject = str(done.kind)
    if done.changed > settings.RECONCILER_ALERT_ABOVE:
        detail = {"name": subject, "count": done.changed}
        alerts.raise_alert("reconciler_found_many", subject, detail=detail)
    elif done.outcome == Outcome.DONE:
        alerts.recover("reconciler_found_many", subject)


def sweeps() -> list[Step]:
    """The steps that the apps bring in their modules `sweeps`."""
    return maintenance.brought("sweeps", "SWEEPS")


def last_run() -> MaintenanceRun | None:
    """The newest round that came to an end, for whoever shows its counts."""
    ended = MaintenanceRun.objects.filter(kind=MaintenanceKind.RECONCILE, finished_at__isnull=False)
    return ended.order_by("-started_at").first()
