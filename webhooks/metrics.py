"""What /metrics tells of the calls that providers make to us."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from prometheus_client.metrics_core import Metric

from pilot.metrics import gauge
from webhooks import reporting


def inbound(now: datetime) -> Iterator[Metric]:
    found = reporting.inbound(now)
    yield gauge("pilot_inbound_calls_pending", "Provider calls not applied yet.", {(): found["pending"]})
    yield gauge("pilot_inbound_oldest_seconds", "Age of the oldest of them.", {(): found["oldest_seconds"]})


COLLECTORS = [inbound]
