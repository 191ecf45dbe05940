"""Repairing by hand: a test, one delivery again, or all of a time again."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import uuid4

from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from pilot import sql
from pilot.celery import wake_webhooks
from pilot.errors import PilotError
from webhooks import endpoints
from webhooks.catalogue import TYPES
from webhooks.models import DeliveryStatus, WebhookDelivery, WebhookEndpoint, WebhookEvent, WebhookReplay

LONGEST_REPLAY = timedelta(days=90)
REPLAYED_AT_ONCE = 500
MOST_REPLAYS = 5  # of an endpoint, at work at the same time


class EndpointOff(PilotError):
    """The endpoint is switched off."""

    code = "endpoint_disabled"
    status = 409


class BeingDelivered(PilotError):
    """The delivery is on its way at this moment."""

    code = "being_delivered"
    status = 409


class InvalidReplay(PilotError):
    """The time makes no sense; `fields` says why."""


class TooManyReplays(PilotError):
    """Some replays of the endpoint are still at work."""

    code = "too_many_replays"
    status = 409


def send_test(endpoint: WebhookEndpoint, *, type: str, now: datetime) -> WebhookDelivery:
    """Sends the catalogue's example of an event, marked as a sample, to one endpoint. Raises EndpointOff."""
    _check_on(endpoint)
    with transaction.atomic():
        event = WebhookEvent.objects.create(
            name=f"evt_test_{uuid4().hex}",
            type=type,
            tenant_id=endpoint.tenant_id,
            project_id=endpoint.project_id,
            environment=endpoint.environment,
            sample=True,
            data=dict(TYPES[type].example),
            at=now,
        )
        delivery = WebhookDelivery.objects.create(endpoint=endpoint, event=event, created_at=now)
    wake_webhooks()
    return delivery


def resend(delivery: WebhookDelivery, *, now: datetime) -> None:
    """Delivers once more, at once and with the same id. Raises EndpointOff or BeingDelivered."""
    _check_on(delivery.endpoint)
    if not _again(Q(pk=delivery.pk, lease_token=None), now):
        raise BeingDelivered(_("It is on its way at this moment."))
    wake_webhooks()


def order_replay(
    endpoint: WebhookEndpoint, *, since: datetime, until: datetime, everything: bool, now: datetime
) -> WebhookReplay:
    """Orders what happened from `since` until before `until` once more: what did not arrive there, or `everything`.

    Also what the endpoint was never told, because it was off or did not exist. Worked off by replay(). Raises
    EndpointOff, InvalidReplay or TooManyReplays.
    """
    _check_on(endpoint)
    until = min(until, now)
    if not timedelta() < until - since <= LONGEST_REPLAY:
        fault = _("Choose a time of at most %(days)s days that has begun.") % {"days": LONGEST_REPLAY.days}
        raise InvalidReplay(fault, fields={"since": [fault]})
    if endpoint.replays.filter(finished_at=None).count() >= MOST_REPLAYS:
        raise TooManyReplays(_("Wait until the replays before this one are done."))
    return WebhookReplay.objects.create(
        endpoint=endpoint, since=since, until=until, everything=everything, created_at=now
    )


def replay(*, now: datetime) -> int:
    """Works off one batch of the oldest replay that nobody else is at. Returns how many events it looked at.

    Deliveries that it orders count as retries: they never delay what happens now.
    """
    with transaction.atomic():
        waiting = WebhookReplay.objects.filter(finished_at=None, endpoint__disabled_at=None).order_by("id")
        order = waiting.select_for_update(skip_locked=True, of=("self",)).select_related("endpoint").first()
        if order is None:
            return 0
        batch = _batch(order)
        ordered = _order(order, [event.pk for event in batch], now)
        order.replayed += ordered
        if batch:
            order.place_at, order.place_id = batch[-1].at, batch[-1].pk
        if len(batch) < REPLAYED_AT_ONCE:
            order.finished_at = now
        order.save(update_fields=["replayed", "place_at", "place_id", "finished_at"])
    if ordered:
        wake_webhooks()
    return max(len(batch), 1)


def _batch(order: WebhookReplay) -> list[WebhookEvent]:
    endpoint = order.endpoint
    rows = WebhookEvent.objects.filter(tenant=endpoint.tenant_id, at__gte=order.since, at__lt=order.until)
    if order.place_at is not None:
        rows = rows.filter(at__gte=order.place_at).exclude(at=order.place_at, pk__lte=order.place_id)
    rows = rows.filter(endpoints.told_of(endpoint)).defer("data")
    return list(rows.order_by("at", "id")[:REPLAYED_AT_ONCE])


_MISSING = """
INSERT INTO webhooks_webhookdelivery
       (endpoint_id, event_id, subject, status, created_at, next_attempt_at, untried, attempts, last_error, log)
SELECT %s, e.id, e.subject, 'pending', %s, %s, false, 0, '', '[]' FROM webhooks_webhookevent e
WHERE e.id = ANY(%s::bigint[]) ORDER BY e.at, e.id
ON CONFLICT (event_id, endpoint_id) DO NOTHING
"""


def _order(order: WebhookReplay, event_ids: list[int], now: datetime) -> int:
    wanted = Q(endpoint=order.endpoint, event__in=event_ids)
    wanted &= ~Q(status=DeliveryStatus.PENDING) if order.everything else Q(status=DeliveryStatus.FAILED)
    again = _again(wanted, now)
    return again + sql.execute(_MISSING, [order.endpoint_id, now, now, event_ids])


def _again(wanted: Q, now: datetime) -> int:
    """Makes deliveries due now, with all their attempts before them. What was never tried keeps its place."""
    fresh = {"status": DeliveryStatus.PENDING, "attempts": 0, "next_attempt_at": now, "finished_at": None}
    return WebhookDelivery.objects.filter(wanted).update(**fresh)


def _check_on(endpoint: WebhookEndpoint) -> None:
    if not endpoint.enabled:
        raise EndpointOff(_("The endpoint is switched off. Switch it on first."))
