"""Claim: which deliveries are made next. Rows are taken under a lease; endpoints are served independently.

An endpoint has slots for first attempts and slots of their own for retries, so that neither waits for the other. What
was never tried follows, for each subject (such as a message), the order in which it happened. An endpoint that does
not answer is left alone for a while, then probed with one delivery.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from django.db import transaction

from pilot import sql
from pilot.encryption import DecryptionError
from webhooks.models import WebhookDelivery, WebhookEndpoint

log = structlog.get_logger(__name__)

FIRST_SLOTS, RETRY_SLOTS = 20, 5  # of an endpoint, over all processes
# Of the free slots of a process one endpoint takes at most this part, so that there is always room for others.
SHARE = 8
# Longer than any call: what is in flight for longer was lost with its process.
LEASE_MARGIN = timedelta(seconds=15)

# Its cost follows the endpoints that have work, however much waits at one of them. `fresh` and `again` go from endpoint
# to endpoint on the partial indexes. The planner's figures are wrong as soon as one endpoint has a backlog; the ranges
# that mean equality keep it on these indexes, because nothing else gives the order.
# The endpoints' rows, at random when they are many, are locked while they are claimed for, and skipped by whoever comes
# meanwhile: so that their slots are counted by one at a time.
_PICK = """
WITH RECURSIVE fresh AS (
    (SELECT d.endpoint_id FROM webhooks_webhookdelivery d
     WHERE d.status = 'pending' AND d.untried AND d.lease_token IS NULL ORDER BY d.endpoint_id, d.id LIMIT 1)
    UNION ALL
    SELECT next.endpoint_id FROM fresh CROSS JOIN LATERAL (
        SELECT d.endpoint_id FROM webhooks_webhookdelivery d
        WHERE d.status = 'pending' AND d.untried AND d.lease_token IS NULL AND d.endpoint_id > fresh.endpoint_id
        ORDER BY d.endpoint_id, d.id LIMIT 1) AS next
), again AS (
    (SELECT d.endpoint_id, d.next_attempt_at FROM webhooks_webhookdelivery d
     WHERE d.status = 'pending' AND NOT d.untried AND d.lease_token IS NULL
     ORDER BY d.endpoint_id, d.next_attempt_at LIMIT 1)
    UNION ALL
    SELECT next.endpoint_id, next.next_attempt_at FROM again CROSS JOIN LATERAL (
        SELECT d.endpoint_id, d.next_attempt_at FROM webhooks_webhookdelivery d
        WHERE d.status = 'pending' AND NOT d.untried AND d.lease_token IS NULL AND d.endpoint_id > again.endpoint_id
        ORDER BY d.endpoint_id, d.next_attempt_at LIMIT 1) AS next
), ready AS MATERIALIZED (
    SELECT e.id, e.open_until IS NOT NULL AS half_open FROM webhooks_webhookendpoint e
    WHERE e.disabled_at IS NULL AND (e.open_until IS NULL OR e.open_until <= %(now)s)
      AND e.id IN (SELECT endpoint_id FROM fresh
                   UNION SELECT endpoint_id FROM again WHERE next_attempt_at <= %(now)s)
    ORDER BY random() LIMIT greatest(%(room)s, 64)
    FOR NO KEY UPDATE OF e SKIP LOCKED
), counted AS MATERIALIZED (
    SELECT ready.id, ready.half_open, flying.first, flying.retries FROM ready CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE d.untried) AS first, count(*) FILTER (WHERE NOT d.untried) AS retries
        FROM webhooks_webhookdelivery d WHERE d.endpoint_id = ready.id AND d.lease_token IS NOT NULL
    ) AS flying
)
SELECT picked.id, counted.id, counted.half_open FROM counted CROSS JOIN LATERAL (
    (SELECT d.id FROM webhooks_webhookdelivery d
     WHERE d.endpoint_id >= counted.id AND d.endpoint_id <= counted.id
       AND d.status = 'pending' AND d.untried AND d.lease_token IS NULL
       AND (d.subject = '' OR d.id = (
            SELECT first.id FROM webhooks_webhookdelivery first
            WHERE first.endpoint_id = d.endpoint_id AND first.subject = d.subject AND first.subject <> ''
              AND first.status = 'pending' AND first.untried
            ORDER BY first.id LIMIT 1))
     ORDER BY d.endpoint_id, d.id LIMIT greatest(least(%(first)s::bigint - counted.first, %(share)s), 0))
    UNION ALL
    (SELECT d.id FROM webhooks_webhookdelivery d
     WHERE d.endpoint_id >= counted.id AND d.endpoint_id <= counted.id
       AND d.status = 'pending' AND NOT d.untried AND d.lease_token IS NULL AND d.next_attempt_at <= %(now)s
     ORDER BY d.endpoint_id, d.next_attempt_at
     LIMIT greatest(least(%(retries)s::bigint - counted.retries, %(share)s), 0))
    LIMIT CASE WHEN counted.half_open THEN 1 ELSE %(share)s END
) AS picked
ORDER BY counted.first + counted.retries, picked.id LIMIT %(room)s
"""
# Once more with its condition: whoever claimed before may have committed between our snapshot and our lock.
_LEASE = """
UPDATE webhooks_webhookdelivery d SET lease_token = taken.token, lease_until = %s, attempts = d.attempts + 1
FROM unnest(%s::bigint[], %s::uuid[]) AS taken (id, token)
WHERE d.id = taken.id AND d.status = 'pending' AND d.lease_token IS NULL
RETURNING d.id, d.lease_token
"""
_PROBE = "UPDATE webhooks_webhookendpoint SET open_until = %s WHERE id = ANY(%s::uuid[])"
_RELEASE = """
UPDATE webhooks_webhookdelivery SET lease_token = NULL, lease_until = NULL, untried = false, next_attempt_at = %s
WHERE id IN (SELECT id FROM webhooks_webhookdelivery WHERE lease_token IS NOT NULL AND lease_until <= %s
             LIMIT 500 FOR UPDATE SKIP LOCKED)
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """A delivery to make now. `probe`: the endpoint was left alone, and this shows whether it answers again."""

    delivery: WebhookDelivery
    endpoint: WebhookEndpoint
    lease_token: UUID
    claimed_at: datetime
    probe: bool


def lease() -> timedelta:
    """How long a claim lasts."""
    return timedelta(seconds=settings.WEBHOOK_TIMEOUT_SECONDS) + LEASE_MARGIN


def claim(*, room: int, now: datetime) -> list[Claim]:
    """Takes at most `room` due deliveries, of each endpoint no more than it has slots for."""
    with transaction.atomic():
        picked = sql.fetch(_PICK, _bounds(room, now))
        if not picked:
            return []
        tokens = {row[0]: uuid4() for row in picked}
        leased = sql.fetch(_LEASE, [now + lease(), list(tokens), list(tokens.values())])
        probed = {row[0]: row[1] for row in picked if row[2]}
        if probed:  # nobody else probes while this may be under way
            sql.execute(_PROBE, [now + lease(), list(probed.values())])
    return _claims({row[0]: row[1] for row in leased}, set(probed), now)


def release_lost(*, now: datetime) -> int:
    """Ends leases that ran out: their process died, and whether they arrived is not known. They are tried again."""
    return sql.execute(_RELEASE, [now, now])


def _claims(leased: dict[int, UUID], probed: set[int], now: datetime) -> list[Claim]:
    rows = WebhookDelivery.objects.filter(pk__in=leased).select_related("event__project").defer("log")
    deliveries = list(rows.order_by("id"))
    endpoints = _endpoints({row.endpoint_id for row in deliveries})
    return [
        Claim(row, endpoints[row.endpoint_id], leased[row.pk], now, row.pk in probed)
        for row in deliveries
        if row.endpoint_id in endpoints
    ]


def _endpoints(ids: Collection[UUID]) -> dict[UUID, WebhookEndpoint]:
    """One whose secrets no key decrypts any more has none, and nothing is sent there; the others do not suffer."""
    try:
        return WebhookEndpoint.objects.in_bulk(ids)
    except DecryptionError:
        if len(ids) > 1:
            return {pk: found for one in ids for pk, found in _endpoints([one]).items()}
    log.error("webhooks.secrets_unreadable", endpoint=str(*ids))
    (endpoint,) = WebhookEndpoint.objects.defer("headers", "secrets").filter(pk__in=ids)
    endpoint.headers, endpoint.secrets = {}, []
    return {endpoint.pk: endpoint}


def _bounds(room: int, now: datetime) -> dict[str, object]:
    share = max(room // SHARE, 1)
    return {"now": now, "first": FIRST_SLOTS, "retries": RETRY_SLOTS, "share": share, "room": room}
