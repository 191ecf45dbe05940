"""Finds instances whose webhooks are silent: they send, their messages arrive, and only asking shows it."""

from __future__ import annotations

from datetime import datetime

import structlog
from django.conf import settings
from django.db.models import OuterRef, Q, Subquery

from instances import health
from instances.models import InstanceStatus, Vitals
from webhooks.models import InboundCall

log = structlog.get_logger(__name__)


def listen(*, now: datetime) -> dict[str, int]:
    """Has the webhook of each silent instance set again, and the instance restarted. Returns counts.

    Calls that are stored and not applied yet count as heard. When nobody at all was heard, it is not several instances
    that fail but our own door, which no restart of theirs opens.
    """
    silent = _silent(now)
    if len(silent) > 1 and not _anybody_heard(now):
        log.error("webhooks.nobody_heard", instances=len(silent))
        return {"nobody_heard": len(silent)}
    suspected = [
        health.suspect(
            instance_id=vitals.instance_id,
            reason="webhooks_silent",
            evidence={"found": vitals.unheard, "expected": vitals.unheard},
            now=now,
        )
        for vitals in silent
    ]
    return {"silent": sum(suspected)} if suspected else {}


def _silent(now: datetime) -> list[Vitals]:
    """Of those whose receipts come by asking only, the ones without a call for so long."""
    newest = (
        InboundCall.objects.filter(instance=OuterRef("instance")).order_by("-id").values("received_at")[:1]
    )
    unheard = Vitals.objects.filter(
        instance__status=InstanceStatus.OPEN,
        unheard__gte=settings.WEBHOOKS_SILENT_LEAST,
        unheard_since__lte=now - settings.WEBHOOKS_SILENT_AFTER,
    )
    quiet = unheard.annotate(newest=Subquery(newest)).filter(
        Q(newest=None) | Q(newest__lte=now - settings.WEBHOOKS_SILENT_AFTER)
    )
    return list(quiet.order_by("instance"))


def _anybody_heard(now: datetime) -> bool:
    newest = InboundCall.objects.order_by("-id").values_list("received_at", flat=True).first()
    return newest is not None and newest > now - settings.WEBHOOKS_SILENT_AFTER
