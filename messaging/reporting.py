"""What /health tells of messages: what waits, in all and on the instances where it waits longest."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Sum

from instances.models import Instance, Lane
from messaging.announcing import STREAM
from messaging.models import Message, Status
from messaging.queues import Waiting, waiting

WORST = 20


def queues(now: datetime) -> dict[str, Any]:
    """All queues together, and those whose oldest message has waited longest."""
    waits = waiting()
    oldest = {key: _age(queue, now) for key, queue in waits.items() if queue.ready}
    worst = sorted(oldest, key=lambda key: -oldest[key])[:WORST]
    return {
        "ready": sum(queue.ready for queue in waits.values()),
        "delayed": sum(queue.delayed for queue in waits.values()),
        "in_flight": Lane.objects.aggregate(sum=Sum("in_flight", default=0))["sum"],
        "unconfirmed": Message.objects.filter(status=Status.UNCONFIRMED).count(),
        "oldest_seconds": max(oldest.values(), default=0),
        "worst": [named | _shape(waits[named["id"]], now) for named in _named(worst)],
    }


def _named(keys: list[int]) -> list[dict[str, Any]]:
    rows = (
        Instance.objects.select_related("tenant")
        .only("name", "status", "paused", "tenant__slug")
        .in_bulk(keys)
    )
    found = [rows[key] for key in keys if key in rows]
    return [
        {"id": i.pk, "tenant": i.tenant.slug, "name": i.name, "status": i.status, "paused": i.paused}
        for i in found
    ]


def _shape(queue: Waiting, now: datetime) -> dict[str, Any]:
    return {"ready": queue.ready, "delayed": queue.delayed, "oldest_seconds": _age(queue, now)}


def _age(queue: Waiting, now: datetime) -> float:
    return round(max((now - queue.oldest_at).total_seconds(), 0), 1) if queue.oldest_at else 0


REPORTS = [("queues", queues)]
STREAMS = [STREAM]
