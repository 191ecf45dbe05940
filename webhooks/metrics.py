"""What /metrics tells of the calls that providers make to us, and of those we make to customers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from prometheus_client.metrics_core import Metric

from pilot.metrics import Values, gauge, histogram, tallied
from webhooks import reporting
from webhooks.models import DeliveryStatus, DisabledBy, WebhookDelivery, WebhookEndpoint
from webhooks.reporting import COUNTED_AT_MOST
from webhooks.tallying import BOUNDS


def inbound(now: datetime) -> Iterator[Metric]:
    found = reporting.inbound(now)
    yield gauge("pilot_inbound_calls_pending", "Provider calls not applied yet.", {(): found["pending"]})
    yield gauge("pilot_inbound_oldest_seconds", "Age of the oldest of them.", {(): found["oldest_seconds"]})


def deliveries(_now: datetime) -> Iterator[Metric]:
    """What is told to customers' endpoints."""
    name, said = "pilot_webhook_attempt_seconds", "Calls to customers' endpoints, by what they answered."
    yield histogram(name, said, "outcome", BOUNDS, tallied(), "webhook_seconds")
    pending: Values = {("first",): _pending(untried=True), ("again",): _pending(untried=False)}
    yield gauge(
        "pilot_webhook_deliveries_pending", "Deliveries that wait, up to a bound.", pending, "attempt"
    )
    disabled = WebhookEndpoint.objects.filter(disabled_by__in=BY_PILOT).count()
    yield gauge("pilot_webhook_endpoints_disabled", "Endpoints that Pilot switched off.", {(): disabled})


def _pending(*, untried: bool) -> int:
    """Each half is served by a partial index."""
    rows = WebhookDelivery.objects.filter(status=DeliveryStatus.PENDING, untried=untried)
    return rows[:COUNTED_AT_MOST].count()


BY_PILOT = (DisabledBy.GONE, DisabledBy.FAILING)
COLLECTORS = [inbound, deliveries]
