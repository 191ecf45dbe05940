"""What of providers' calls may go: soon, once they are applied; later, when they could not be."""

from __future__ import annotations

from django.db.models import QuerySet

from pilot.retention import pruned
from webhooks.models import InboundCall


def _applied() -> QuerySet[InboundCall]:
    return InboundCall.objects.filter(applied_at__isnull=False, error="")


def _in_error() -> QuerySet[InboundCall]:
    return InboundCall.objects.filter(applied_at__isnull=False).exclude(error="")


STEPS = (
    pruned("inbound_calls", _applied, at="received_at"),
    pruned("inbound_calls_in_error", _in_error, at="received_at"),
)
