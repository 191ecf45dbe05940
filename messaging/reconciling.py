"""What time alone decides: deadlines, leases that ran out, and answers that never came.

Each function takes rows in bounded batches, skips what somebody else holds, and can run twice at once: its
correctness is in the row updates. All return counts of what they did.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import connection, transaction

from instances.accounts import account_of
from instances.providers import PROVIDERS
from instances.providers.base import Finding, Found, OutboundMessage, ProviderError
from instances.providers.http import perform
from messaging import status
from messaging.models import FailureCode, Message, Status
from messaging.settling import vacate
from messaging.status import Move

log = structlog.get_logger(__name__)

BATCH = 500
LOOKED_UP_AT_ONCE = 50
# How long after its deadline an unconfirmed message may still be looked for; then policy decides.
GRACE = timedelta(seconds=30)
# Look-ups grow apart: 5 s, 10, 20 … at most this far.
LONGEST_BETWEEN_LOOK_UPS = timedelta(minutes=10)

_EXPIRED = """
SELECT id FROM messaging_message
WHERE status = 'queued' AND (deliver_until AT TIME ZONE 'UTC') <= (%s AT TIME ZONE 'UTC')
ORDER BY (deliver_until AT TIME ZONE 'UTC') LIMIT %s FOR UPDATE SKIP LOCKED
"""
_LEASES = """
SELECT id, instance_id, lease_token FROM messaging_message
WHERE lease_until IS NOT NULL AND lease_until <= %s ORDER BY lease_until LIMIT %s FOR UPDATE SKIP LOCKED
"""
# Taking a look-up moves its time on, so that two processes do not ask the same thing.
_UNCONFIRMED = """
UPDATE messaging_message SET next_attempt_at = %(now)s + least(
    greatest(%(now)s - attempted_at, interval '5 seconds'), %(longest)s)
WHERE id IN (
    SELECT id FROM messaging_message WHERE status = 'unconfirmed' AND next_attempt_at <= %(now)s
    ORDER BY next_attempt_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING id
"""


def reconcile_deadlines(*, now: datetime) -> dict[str, int]:
    """Expires queued messages past their deadline, and ends leases that ran out."""
    return {"expired": expire(now=now), "leases": release_expired_leases(now=now)}


def expire(*, now: datetime) -> int:
    """Fails every queued message whose deadline has passed."""
    return _in_batches(_EXPIRED, _expire_batch, now)


def _expire_batch(rows: list[Any], now: datetime) -> int:
    moves = [
        Move(
            message_id=row[0],
            to=Status.FAILED,
            at=now,
            failure_code=FailureCode.EXPIRED,
            detail={"gate": "deadline", "code": FailureCode.EXPIRED},
        )
        for row in rows
    ]
    return len(status.move(*moves).changed)


def release_expired_leases(*, now: datetime) -> int:
    """Ends leases whose process vanished: the message may or may not have gone out, so it becomes unconfirmed."""
    return _in_batches(_LEASES, _release_batch, now)


def _release_batch(rows: list[Any], now: datetime) -> int:
    moves = [
        Move(
            message_id=message_id,
            to=Status.UNCONFIRMED,
            at=now,
            lease_token=token,
            next_attempt_at=now,
            detail={"code": "lease_expired", "reason": "The process that was sending it vanished."},
        )
        for message_id, _instance_id, token in rows
    ]
    released = status.move(*moves).released
    vacate(instance_id for _id, instance_id, token in rows if token in released)
    return len(released)


def _in_batches(sql: str, handle: Callable[[list[Any], datetime], int], now: datetime) -> int:
    """Locks rows and handles them, a transaction for each batch, until one is not full. Returns the sum."""
    total = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql, [now, BATCH])
            rows = cursor.fetchall()
            total += handle(rows, now)
        if len(rows) < BATCH:
            return total


def look_up_unconfirmed(*, now: datetime) -> dict[str, int]:
    """Asks providers what became of messages whose answer was lost; past the deadline, policy decides."""
    counts = {"found": 0, "not_sent": 0, "still_unknown": 0, "given_up": 0}
    for message in _take_unconfirmed(now):
        if now >= message.deliver_until + GRACE:
            _give_up(message, now)
            counts["given_up"] += 1
            continue
        found = _ask(message, now)
        _apply(message, found, now)
        counts[found.finding] += 1
    return counts


def _take_unconfirmed(now: datetime) -> list[Message]:
    with connection.cursor() as cursor:
        cursor.execute(
            _UNCONFIRMED, {"now": now, "longest": LONGEST_BETWEEN_LOOK_UPS, "limit": LOOKED_UP_AT_ONCE}
        )
        ids = [row[0] for row in cursor.fetchall()]
    return list(Message.objects.filter(pk__in=ids).select_related("instance"))


def _ask(message: Message, now: datetime) -> Found:
    provider = PROVIDERS[message.instance.provider]
    if "find" not in provider.supports:
        return Found(Finding.STILL_UNKNOWN)
    outbound = OutboundMessage(
        id=message.pk,
        to=message.to,
        recipient_id=message.recipient_id,
        text=message.content["text"],
        provider_message_id=message.provider_message_id or "",
        attempted_at=message.attempted_at,
    )
    try:
        return perform(provider.find(account_of(message.instance_id), outbound, now=now))
    except ProviderError as error:
        log.info("unconfirmed.look_up_failed", message_id=message.pk, code=error.code)
        return Found(Finding.STILL_UNKNOWN)


def _apply(message: Message, found: Found, now: datetime) -> None:
    detail = {"why": "look_up", "finding": found.finding}
    if found.finding == Finding.FOUND:
        status.move(
            Move(
                message_id=message.pk,
                to=found.status or Status.SUBMITTED,
                at=now,
                provider_message_id=found.provider_message_id,
                recipient_id=found.recipient_id,
                detail=detail,
            )
        )
    if found.finding == Finding.NOT_SENT:
        status.move(Move(message_id=message.pk, to=Status.QUEUED, at=now, detail=detail))


def _give_up(message: Message, now: datetime) -> None:
    """The policy of last resort: never send again what may have gone out."""
    status.move(
        Move(
            message_id=message.pk,
            to=Status.FAILED,
            at=now,
            failure_code=FailureCode.OUTCOME_UNKNOWN,
            detail={"code": FailureCode.OUTCOME_UNKNOWN},
        )
    )
