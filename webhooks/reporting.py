"""What /health tells of the calls that providers make to us."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from webhooks.models import InboundCall

COUNTED_AT_MOST = 10_000


def inbound(now: datetime) -> dict[str, Any]:
    """Calls that are stored and not applied yet, counted up to a bound."""
    pending = InboundCall.objects.filter(applied_at=None)
    oldest = pending.order_by("id").values_list("received_at", flat=True).first()
    return {
        "pending": pending[:COUNTED_AT_MOST].count(),
        "oldest_seconds": round(max((now - oldest).total_seconds(), 0), 1) if oldest else 0,
    }


REPORTS = [("inbound", inbound)]
STREAMS: list[str] = []
