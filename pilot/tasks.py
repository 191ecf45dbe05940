"""Tasks about the processes themselves."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from pilot import health, reconciling
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
def reconcile(*, at_once: bool = False, **_kwargs: Any) -> None:
    """The full reconciler, when it is due or wanted at once; see pilot/reconciling.py."""
    reconciling.run() if at_once else reconciling.run_if_due()
