"""What time alone decides: deadlines, leases that ran out, and answers that never came.

Each function takes rows in bounded batches, skips what somebody else holds, and can run twice at once: its
correctness is in the row updates. All return counts of what they did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import IntegrityError, connection, transaction

from instances.accounts import account_of
from instances.providers import PROVIDERS
from instances.providers.base import Call, Finding, Found, ProviderError
from instances.providers.http import perform_all
from messaging import status
from messaging.models import Category, FailureCode, Message, Status, UnknownPolicy
from messaging.outbound import outbound_of
from messaging.settling import vacate
from messaging.status import Move

log = structlog.get_logger(__name__)

BATCH = 500
LOOKED_UP_AT_ONCE = 50
# How long after its deadline an unconfirmed message may still be looked for; then policy decides.
GRACE = timedelta(seconds=30)
# A pace is never longer; an open lane that was free for so long had nobody to use it.
LATE_AFTER = timedelta(minutes=2)
HURRIED_AT_ONCE = 3
# How long the provider is asked about a one-time code before a tenant's policy sends it again.
RESEND_AFTER = timedelta(seconds=20)

_EXPIRED = """
SELECT id FROM messaging_message
WHERE status = 'queued' AND (deliver_until AT TIME ZONE 'UTC') <= (%s AT TIME ZONE 'UTC')
ORDER BY (deliver_until AT TIME ZONE 'UTC') LIMIT %s FOR UPDATE SKIP LOCKED
"""
_LEASES = """
SELECT id, instance_id, lease_token FROM messaging_message
WHERE lease_until IS NOT NULL AND lease_until <= %s ORDER BY lease_until LIMIT %s FOR UPDATE SKIP LOCKED
"""
# Taking a look-up moves its time on, so that two processes do not ask the same thing. Look-ups grow apart: each wait
# is as long as what has passed since the attempt, but the last is not later than the decision.
_UNCONFIRMED = """
UPDATE messaging_message SET next_attempt_at = least(
    %(now)s + least(greatest(%(now)s - attempted_at, interval '5 seconds'), interval '10 minutes'),
    greatest(deliver_until + %(grace)s, %(now)s + interval '5 seconds'))
WHERE id IN (
    SELECT id FROM messaging_message WHERE status = 'unconfirmed' AND next_attempt_at <= %(now)s
    ORDER BY next_attempt_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING id
"""


def reconcile_deadlines(*, now: datetime) -> dict[str, int]:
    """Expires queued messages past their deadline, ends leases that ran out, hurries what was found late."""
    return {
        "expired": expire(now=now),
        "leases": release_expired_leases(now=now),
        "late": hurry(now=now),
    }


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


# Ready for a while on an instance that is free: whatever should have sent it was not there. Few of each instance at a
# time, because a number that sends many without a pause is banned.
_LATE = """
UPDATE messaging_message SET late = true WHERE id IN (
    SELECT head.id FROM instances_lane lane
    JOIN instances_instance i ON i.id = lane.instance_id
    CROSS JOIN LATERAL (
        SELECT m.id FROM messaging_message m
        WHERE m.instance_id = lane.instance_id AND m.status = 'queued' AND m.next_attempt_at IS NULL
          AND m.created_at < %(since)s AND NOT m.late
        ORDER BY m.urgent DESC, m.project_id, m.deliver_until, m.id LIMIT %(few)s
    ) AS head
    WHERE i.status = 'open' AND NOT i.paused AND lane.in_flight = 0 AND lane.next_send_at < %(since)s
)
"""


def hurry(*, now: datetime) -> int:
    """Marks messages that an idle instance left waiting: no pace is kept after them (ME-10). Returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(_LATE, {"since": now - LATE_AFTER, "few": HURRIED_AT_ONCE})
        return cursor.rowcount


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


# --- messages whose answer was lost -----------------------------------------------------------------------


def look_up_unconfirmed(*, now: datetime) -> dict[str, int]:
    """Asks providers what became of messages whose answer was lost; what stays unknown, policy decides."""
    messages = _take_unconfirmed(now)
    findings = _ask(
        messages, now
    )  # also those that are given up now: they may have become unconfirmed just before
    resending = _resending_tenants(messages)
    moves = [
        _decided(message, findings.get(message.pk), message.tenant_id in resending, now)
        for message in messages
    ]
    _apply([move for move in moves if move])
    counts = Counter(found.finding.value for found in findings.values())
    return dict(counts) | {"decided": sum(move is not None for move in moves)}


def _take_unconfirmed(now: datetime) -> list[Message]:
    values: dict[str, Any] = {"now": now, "grace": GRACE, "limit": LOOKED_UP_AT_ONCE}
    with connection.cursor() as cursor:
        cursor.execute(_UNCONFIRMED, values)
        ids = [row[0] for row in cursor.fetchall()]
    return list(Message.objects.filter(pk__in=ids).select_related("instance"))


def _ask(messages: Sequence[Message], now: datetime) -> dict[str, Found]:
    askable = [message for message in messages if "find" in PROVIDERS[message.instance.provider].supports]
    calls: list[Call[Found]] = [
        PROVIDERS[message.instance.provider].find(
            account_of(message.instance_id), outbound_of(message), now=now
        )
        for message in askable
    ]
    answers = perform_all(calls)
    return {message.pk: _finding(message, answer) for message, answer in zip(askable, answers, strict=True)}


def _finding(message: Message, answer: Found | ProviderError) -> Found:
    if isinstance(answer, Found):
        return answer
    log.info("unconfirmed.look_up_failed", message_id=message.pk, code=answer.code)
    return Found(Finding.STILL_UNKNOWN)


def _resending_tenants(messages: Iterable[Message]) -> frozenset[int]:
    """Tenants that want one-time codes sent again when nobody knows whether they went out."""
    tenants = {message.tenant_id for message in messages if message.category == Category.OTP}
    chosen = UnknownPolicy.objects.filter(tenant__in=tenants, category=Category.OTP, resend=True)
    return frozenset(chosen.values_list("tenant_id", flat=True)) if tenants else frozenset()


def _decided(message: Message, found: Found | None, resends: bool, now: datetime) -> Move | None:
    """What is to be done now, or None to go on looking. Never sends again what may have gone out, unless told to."""
    if found and found.finding == Finding.FOUND:
        return _found(message, found, now)
    if found and found.finding == Finding.NOT_SENT:
        return Move(message_id=message.pk, to=Status.QUEUED, at=now, detail={"why": "surely_not_sent"})
    if now >= message.deliver_until + GRACE:
        return _given_up(message, now)
    if resends and message.category == Category.OTP and _waited_enough(message, now):
        return Move(message_id=message.pk, to=Status.QUEUED, at=now, detail={"why": "policy_resend"})
    return None


def _apply(moves: Sequence[Move]) -> None:
    """All at once; where a provider id turns out to belong to another message, one by one and without that one."""
    try:
        status.move(*moves)
    except IntegrityError:
        for move in moves:
            with suppress(IntegrityError):
                status.move(move)


def _found(message: Message, found: Found, now: datetime) -> Move:
    return Move(
        message_id=message.pk,
        to=found.status or Status.SUBMITTED,
        at=now,
        failure_code=FailureCode.UNDELIVERABLE if found.status == Status.FAILED else "",
        provider_message_id=found.provider_message_id,
        recipient_id=found.recipient_id,
        detail={"why": "look_up"},
    )


def _given_up(message: Message, now: datetime) -> Move:
    code = FailureCode.OUTCOME_UNKNOWN
    return Move(
        message_id=message.pk,
        to=Status.FAILED,
        at=now,
        only_from=frozenset({Status.UNCONFIRMED}),  # a receipt may have come while the provider was asked
        failure_code=code,
        detail={"code": code},
    )


def _waited_enough(message: Message, now: datetime) -> bool:
    started = message.attempted_at or message.created_at
    return started + RESEND_AFTER <= now < message.deliver_until
