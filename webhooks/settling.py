"""Settle: what came of deliveries, written down many at once; and what endpoints are thought of afterwards.

    2xx                           delivered
    410                           failed, and the endpoint is switched off
    429, 503 with Retry-After     tried again, not before it; the endpoint is left alone for as long, 5 minutes at most
    anything else, or no answer   tried again as webhooks/retrying.py says, at last failed

An endpoint that did not answer five times in a row is left alone, for longer each time; one that has taken nothing for
a day is switched off.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, transaction
from psycopg.types.json import Jsonb

from accounts import events
from pilot import alerts, sql
from pilot.outbound import Answer, Unanswered
from webhooks import retrying, tallying
from webhooks.claiming import Claim
from webhooks.models import DeliveryStatus, DisabledBy, WebhookEndpoint

log = structlog.get_logger(__name__)

GONE = 410
SLOW_DOWN = frozenset({429, 503})
# A gateway's word for an endpoint behind it that does not answer.
SILENCE = frozenset({502, 503, 504})
SILENT_CALLS = 5  # in a row, before it is left alone
KEPT_ATTEMPTS = 20
SUCCESS_STEP = timedelta(minutes=1)  # how exactly the last success is remembered


@dataclass(frozen=True, slots=True)
class Settlement:
    """What came of a claim. `entry` is the attempt for the delivery's log, see webhooks/attempts.py."""

    claim: Claim
    result: Answer | Unanswered
    entry: Mapping[str, Any]

    @property
    def status_code(self) -> int | None:
        return self.result.status if isinstance(self.result, Answer) else None

    @property
    def arrived(self) -> bool:
        return self.status_code is not None and 200 <= self.status_code < 300

    @property
    def gone(self) -> bool:
        return self.status_code == GONE

    @property
    def silent(self) -> bool:
        """Whether the endpoint itself said nothing."""
        return self.status_code is None or self.status_code in SILENCE

    def patience(self, now: datetime) -> timedelta | None:
        """What the answer's Retry-After asks for."""
        if not isinstance(self.result, Answer) or self.status_code not in SLOW_DOWN:
            return None
        return retrying.patience(self.result.headers, now=now)


# A lease ends only once: settling again what was settled before changes nothing.
_SETTLE = f"""
UPDATE webhooks_webhookdelivery d SET
    status = new.status, next_attempt_at = new.next_attempt_at, finished_at = new.finished_at,
    last_status_code = new.status_code, last_error = new.error, untried = false,
    lease_token = NULL, lease_until = NULL,
    log = (CASE WHEN jsonb_array_length(d.log) >= {KEPT_ATTEMPTS} THEN d.log - 0 ELSE d.log END) || new.entry
FROM unnest(%s::uuid[], %s::bigint[], %s::text[], %s::timestamptz[], %s::timestamptz[], %s::smallint[], %s::text[],
            %s::jsonb[]) AS new (token, id, status, next_attempt_at, finished_at, status_code, error, entry)
WHERE d.id = new.id AND d.lease_token = new.token
"""


def settle(settlements: Sequence[Settlement], *, now: datetime) -> None:
    """Records what came of claims, then lets their endpoints be judged by it. Raises Django's database errors."""
    rows = sorted((_row(settlement, now) for settlement in settlements), key=lambda row: row[1])
    sql.execute(_SETTLE, [list(column) for column in zip(*rows, strict=True)])
    try:
        _judge(settlements, now)
        tallying.count(settlement.result for settlement in settlements)
    except DatabaseError:  # apart from the above, which must not be done again because of it
        log.exception("webhooks.nothing_learned")


def _row(settlement: Settlement, now: datetime) -> tuple[Any, ...]:
    claim = settlement.claim
    status, next_attempt_at = verdict(settlement, now=now)
    finished_at = None if status == DeliveryStatus.PENDING else now
    error = settlement.result.code if isinstance(settlement.result, Unanswered) else ""
    entry = Jsonb([dict(settlement.entry)])
    return (
        claim.lease_token,
        claim.delivery.pk,
        status,
        next_attempt_at,
        finished_at,
        settlement.status_code,
        error,
        entry,
    )


def verdict(settlement: Settlement, *, now: datetime) -> tuple[str, datetime | None]:
    """The delivery's status, and when it is tried again. Pure but for the jitter."""
    if settlement.arrived:
        return DeliveryStatus.DELIVERED, None
    attempts = settlement.claim.delivery.attempts
    at = retrying.next_attempt(attempts=attempts, now=now, patience=settlement.patience(now))
    if at is None or settlement.gone:
        return DeliveryStatus.FAILED, None
    return DeliveryStatus.PENDING, at


# --- endpoints --------------------------------------------------------------------------------------------


def _judge(settlements: Sequence[Settlement], now: datetime) -> None:
    """Locks the endpoints in one order, so that two batches cannot deadlock; only those that something changes for."""
    by_endpoint: dict[UUID, list[Settlement]] = defaultdict(list)
    for settlement in settlements:
        by_endpoint[settlement.claim.endpoint.pk].append(settlement)
    touched = [pk for pk, batch in by_endpoint.items() if not _unchanged(batch, now)]
    if not touched:
        return
    rows = WebhookEndpoint.objects.defer("headers", "secrets").select_for_update(no_key=True)
    with transaction.atomic():
        for endpoint in rows.filter(pk__in=touched).order_by("pk"):
            _learn(endpoint, by_endpoint[endpoint.pk], now)


def _unchanged(batch: Sequence[Settlement], now: datetime) -> bool:
    """Whether all is well and was so already: the happy path writes no endpoint."""
    known = batch[0].claim.endpoint
    troubled = known.failing_since or known.silent_calls or known.open_until
    fresh = known.succeeded_at is not None and known.succeeded_at > now - SUCCESS_STEP
    return fresh and not troubled and all(settlement.arrived for settlement in batch)


def _learn(endpoint: WebhookEndpoint, batch: Sequence[Settlement], now: datetime) -> None:
    if any(settlement.arrived for settlement in batch):
        endpoint.failing_since, endpoint.succeeded_at = None, now
    elif endpoint.failing_since is None:
        endpoint.failing_since = min(settlement.claim.claimed_at for settlement in batch)
    _note_silence(endpoint, batch, now)
    _note_patience(endpoint, batch, now)
    fields = ["failing_since", "succeeded_at", "silent_calls", "open_until"]
    endpoint.save(update_fields=fields)
    if any(settlement.gone for settlement in batch):
        _disable(endpoint, DisabledBy.GONE, now)
    elif endpoint.failing_since and endpoint.failing_since <= now - settings.WEBHOOK_DISABLED_AFTER:
        _disable(endpoint, DisabledBy.FAILING, now)


def _note_silence(endpoint: WebhookEndpoint, batch: Sequence[Settlement], now: datetime) -> None:
    """An answer, even a bad one, ends the pause. Silence of calls that were under way when it began is no news."""
    if not all(settlement.silent for settlement in batch):
        endpoint.silent_calls, endpoint.open_until = 0, None
        return
    probed = any(settlement.claim.probe for settlement in batch)
    if endpoint.open_until is not None and now < endpoint.open_until and not probed:
        return
    if probed:
        endpoint.silent_calls += 1
    else:
        endpoint.silent_calls = min(endpoint.silent_calls + len(batch), SILENT_CALLS)
    endpoint.open_until = _pause_until(endpoint.silent_calls, now)


def _pause_until(silent_calls: int, now: datetime) -> datetime | None:
    beyond = silent_calls - SILENT_CALLS
    if beyond < 0:
        return None
    return now + min(settings.WEBHOOK_SHORTEST_PAUSE * 2 ** min(beyond, 10), settings.WEBHOOK_LONGEST_PAUSE)


def _note_patience(endpoint: WebhookEndpoint, batch: Sequence[Settlement], now: datetime) -> None:
    asked = max((settlement.patience(now) or timedelta() for settlement in batch), default=timedelta())
    if asked:
        until = now + min(asked, settings.WEBHOOK_LONGEST_PAUSE)
        endpoint.open_until = max(endpoint.open_until or until, until)


def _disable(endpoint: WebhookEndpoint, why: str, now: datetime) -> None:
    """Switches it off and says so: in the dashboard, as an alert, and to the tenant's other endpoints."""
    on = WebhookEndpoint.objects.filter(pk=endpoint.pk, disabled_at=None)
    if not on.update(disabled_at=now, disabled_by=why):
        return
    log.warning("webhooks.endpoint_disabled", endpoint=str(endpoint.pk), why=why)
    since = endpoint.failing_since
    events.record(
        tenant_id=endpoint.tenant_id,
        kind="endpoint.disabled",
        data={
            "endpoint_id": str(endpoint.pk),
            "url": endpoint.url,
            "reason": why,
            "failing_since": since.isoformat() if since else None,
        },
        at=now,
        environment=endpoint.environment,
        subject=f"endpoint:{endpoint.pk}",
    )
    alerts.raise_alert(
        "webhook_endpoint_disabled",
        str(endpoint.pk),
        tenant_id=endpoint.tenant_id,
        detail={"name": endpoint.description or urlsplit(endpoint.url).hostname, "why": why},
        now=now,
    )
