"""What may go: providers' calls, soon once they are applied, later when they could not be; and what customers were
told, unless it still waits."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, QuerySet

from pilot.retention import pruned
from webhooks.models import DeliveryStatus, InboundCall, WebhookDelivery, WebhookEvent, WebhookReplay


def _applied() -> QuerySet[InboundCall]:
    return InboundCall.objects.filter(applied_at__isnull=False, error="")


def _in_error() -> QuerySet[InboundCall]:
    return InboundCall.objects.filter(applied_at__isnull=False).exclude(error="")


def _told() -> QuerySet[WebhookEvent]:
    """With their deliveries."""
    waiting = WebhookDelivery.objects.filter(event=OuterRef("pk"), status=DeliveryStatus.PENDING)
    return WebhookEvent.objects.filter(~Exists(waiting))


STEPS = (
    pruned("inbound_calls", _applied, at="received_at"),
    pruned("inbound_calls_in_error", _in_error, at="received_at"),
    pruned("webhook_events", _told),
    pruned(
        "webhook_replays", lambda: WebhookReplay.objects.filter(finished_at__isnull=False), at="created_at"
    ),
)
