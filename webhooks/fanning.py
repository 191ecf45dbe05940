"""The reader `webhooks`: makes deliveries of what happened, exactly one for each endpoint and event.

It keeps its places in the database and reads rows, so that a Redis that is flushed or away changes nothing. Events,
their deliveries and the place are one transaction. Reading something twice makes nothing twice: an event's name is made
of the row it comes from, and a delivery is unique.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog
from django.db import transaction

from accounts.models import Event
from messaging.models import MessageEvent
from pilot import outbox, sql
from pilot.celery import wake_webhooks
from pilot.models import StreamPlace
from webhooks import payloads
from webhooks.catalogue import TYPES
from webhooks.models import WebhookEndpoint, WebhookEvent

log = structlog.get_logger(__name__)

BATCH = 200

EndpointsOf = Mapping[int, Sequence[WebhookEndpoint]]


class _Source(NamedTuple):
    """A table of events: its reader's place, the field of endpoints that says from where on, and how rows are told."""

    place: str
    after: str
    model: type[MessageEvent] | type[Event]
    tell: Callable[[Collection[int]], list[tuple[int, WebhookEvent]]]


def fan_out() -> int:
    """Passes on one batch of each kind of event. Returns how many were looked at, so 0 means: nothing waits."""
    outbox.number(Event)
    return sum(_pass_on(source) for source in SOURCES)


def _pass_on(source: _Source) -> int:
    with transaction.atomic():
        place = outbox.locked_place(source.place)
        waiting = source.model.objects.filter(position__gt=place.position).order_by("position")
        rows = list(waiting.values_list("id", "tenant_id", "position")[:BATCH])
        if not rows:
            return 0
        endpoints = _endpoints_of({tenant_id for _pk, tenant_id, _position in rows})
        told = source.tell([pk for pk, tenant_id, _position in rows if tenant_id in endpoints])
        made = _deliver(told, endpoints, source.after)
        StreamPlace.objects.filter(pk=place.pk).update(position=rows[-1][2])
    if made:
        wake_webhooks()
    return len(rows)


def _endpoints_of(tenant_ids: Collection[int]) -> EndpointsOf:
    """The tenants' endpoints, also those that are off: their events are kept, to be replayed."""
    rows = WebhookEndpoint.present.filter(tenant_id__in=tenant_ids).defer("headers", "secrets")
    found: dict[int, list[WebhookEndpoint]] = defaultdict(list)
    for endpoint in rows.order_by("id"):
        found[endpoint.tenant_id].append(endpoint)
    return found


# --- telling ----------------------------------------------------------------------------------------------


def _of_messages(ids: Collection[int]) -> list[tuple[int, WebhookEvent]]:
    rows = MessageEvent.objects.filter(pk__in=ids).order_by("position")
    rows = rows.select_related("message__instance", "message__template_version__template").defer(
        "message__content",
        "message__variables",
        "message__instance__credentials",
        "message__instance__hook_token",
        "message__template_version__content",
    )
    return [(row.position or 0, _of_message(row)) for row in rows if f"message.{row.kind}" in TYPES]


def _of_message(row: MessageEvent) -> WebhookEvent:
    message = row.message
    return WebhookEvent(
        name=f"evt_m{row.pk}",
        type=f"message.{row.kind}",
        tenant_id=row.tenant_id,
        project_id=message.project_id,
        environment=message.environment,
        subject=message.pk,
        data=payloads.of_message(row),
        at=row.at,
    )


def _of_events(ids: Collection[int]) -> list[tuple[int, WebhookEvent]]:
    rows = list(Event.objects.filter(pk__in=ids).order_by("position"))
    for kind in sorted({row.kind for row in rows} - set(TYPES)):
        log.error("webhooks.event_unknown", kind=kind)
    return [(row.position or 0, _of_event(row)) for row in rows if row.kind in TYPES]


def _of_event(row: Event) -> WebhookEvent:
    return WebhookEvent(
        name=f"evt_{row.pk}",
        type=row.kind,
        tenant_id=row.tenant_id,
        project_id=row.project_id,
        environment=row.environment,
        subject=row.subject,
        data=row.detail,
        at=row.at,
    )


SOURCES = (
    _Source("messaging.messageevent.webhooks", "messages_after", MessageEvent, _of_messages),
    _Source("accounts.event.webhooks", "events_after", Event, _of_events),
)


# --- delivering -------------------------------------------------------------------------------------------

_INSERT = """
INSERT INTO webhooks_webhookdelivery
       (endpoint_id, event_id, subject, status, created_at, untried, attempts, last_error, log)
SELECT given.endpoint_id, given.event_id, given.subject, 'pending', now(), true, 0, '', '[]'
FROM unnest(%s::uuid[], %s::bigint[], %s::text[]) WITH ORDINALITY AS given (endpoint_id, event_id, subject, place)
ORDER BY given.place
ON CONFLICT (event_id, endpoint_id) DO NOTHING
"""


def _deliver(told: Sequence[tuple[int, WebhookEvent]], endpoints: EndpointsOf, after: str) -> int:
    """Keeps the events and makes their deliveries, in their order. Returns how many."""
    kept = keep(event for _position, event in told)
    wanted = [
        (endpoint.pk, event.pk, event.subject)
        for (position, _event), event in zip(told, kept, strict=True)
        for endpoint in endpoints[event.tenant_id]
        if endpoint.enabled and position > getattr(endpoint, after) and is_for(event, endpoint)
    ]
    return sql.execute(_INSERT, [list(column) for column in zip(*wanted, strict=True)]) if wanted else 0


def keep(events: Iterable[WebhookEvent]) -> list[WebhookEvent]:
    """The events as rows, those that were kept before included, in their order."""
    named = {event.name: event for event in events}
    WebhookEvent.objects.bulk_create(named.values(), ignore_conflicts=True)
    rows = WebhookEvent.objects.defer("data").in_bulk(named, field_name="name")
    return [rows[name] for name in named]


def is_for(event: WebhookEvent, endpoint: WebhookEndpoint) -> bool:
    """Whether the endpoint, of the event's tenant, wants to hear of it. endpoints.told_of() says it to the database."""
    return (
        event.environment in ("", endpoint.environment)
        and (endpoint.project_id is None or event.project_id in (None, endpoint.project_id))
        and (not endpoint.types or event.type in endpoint.types)
    )
