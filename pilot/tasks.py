"""Tasks about the processes themselves."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from pilot import health, reconciling, retention
from pilot.alerts import delivering


@shared_task(name="pilot.heartbeat")
def heartbeat(*, name: str, detail: dict[str, Any], **_kwargs: Any) -> None:
    """A worker's proof of progress; see pilot/worker.py."""
    health.beat(name=name, kind="worker", detail=detail)


@shared_task(name="pilot.deliver_alerts")
def deliver_alerts(*, channel: str, **_kwargs: Any) -> int:
    """Notices wait in this channel. Returns how many were sent."""
    return delivering.deliver(channel)


@shared_task(name="pilot.reconcile")
def reconcile(**_kwargs: Any) -> None:
    """Every MESSAGE_RECONCILER_INTERVAL_MS, and when somebody wants it: the full reconciler."""
    reconciling.run()


@shared_task(name="pilot.retention")
def retain(**_kwargs: Any) -> None:
    """Once a day, and when somebody wants it: retention."""
    retention.run()
