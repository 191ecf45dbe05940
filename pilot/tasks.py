"""Tasks about the processes themselves."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from pilot import health
from pilot.alerts import delivering


@shared_task(name="pilot.heartbeat")
def heartbeat(*, name: str, detail: dict[str, Any], **_kwargs: Any) -> None:
    """A worker's proof of progress; see pilot/worker.py."""
    health.beat(name=name, kind="worker", detail=detail)


@shared_task(name="pilot.deliver_alerts")
def deliver_alerts(*, channel: str, **_kwargs: Any) -> int:
    """Notices wait in this channel. Returns how many were sent."""
    return delivering.deliver(channel)
