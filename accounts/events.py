"""What a tenant's own programs may hear of: rows, written with the change itself, that readers above pick up later.

News travels up as rows. Any app records here, in the transaction of what happened; the reader of webhooks/announcing.py
turns the rows into deliveries. A new kind needs an entry in webhooks/catalogue.py, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from accounts.models import Event


def record(
    *,
    tenant_id: int,
    kind: str,
    data: Mapping[str, Any],
    at: datetime,
    project_id: int | None = None,
    environment: str = "",
    subject: str = "",
) -> Event:
    """Records one event. To be called in the transaction of the change.

    `data` is JSON, in the shape that the event catalogue gives for `kind`. Events of one `subject` (at most 64
    characters, such as `instance:12`) are delivered in their order while an endpoint is healthy.
    """
    event = Event(
        tenant_id=tenant_id,
        kind=kind,
        detail=dict(data),
        at=at,
        project_id=project_id,
        environment=environment,
        subject=subject,
    )
    record_all([event])
    return event


def record_all(events: Iterable[Event]) -> None:
    """Records many events in one statement."""
    Event.objects.bulk_create(events)
