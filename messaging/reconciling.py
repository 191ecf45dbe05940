"""What time alone decides: deadlines, leases that ran out, and answers that never came.

Each function takes rows in bounded batches, skips what somebody else holds, and can run twice at once: its
correctness is in the row updates. All return counts of what they did.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import IntegrityError, connection, transaction

from instances.accounts import account_of
from instances.providers import PROVIDERS
from instances.providers.base import Call, Finding, Found, ProviderError
from instances.providers.http import perform_all
from messaging import status
from messaging.claiming import claim, refused
from messaging.gates import Refusal
from messaging.models import Category, FailureCode, Message, Status, UnknownPolicy
from messaging.outbound import outbound_of
from messaging.settling import vacate
from messaging.status import Move
from pilot import sql

log = structlog.get_logger(__name__)

BATCH = 500
LOOKED_UP_AT_ONCE = 100
LOOK_UP_SECONDS = 20.0
# How long after its deadline an unconfirmed message may still be looked for; then policy decides.
GRACE = timedelta(seconds=30)
# An unconfirmed message that nobody could ask about is given up this long after its deadline.
LAST_MOMENT = timedelta(seconds=50)
# An open lane that has been free for so long had nobody to use it.
LATE_AFTER = timedelta(minutes=2)
HURRIED_AT_ONCE = 3
# How long the provider is asked about a one-time code before a tenant's policy sends it again.
RESEND_AFTER = timedelta(seconds=20)
RESENDS = 1

_EXPIRED = """
SELECT id FROM messaging_message
WHERE status = 'queued' AND (deliver_until AT TIME ZONE 'UTC') <= (%s AT TIME ZONE 'UTC')
ORDER BY (deliver_until AT TIME ZONE 'UTC') LIMIT %s FOR UPDATE SKIP LOCKED
"""
_LEASES = """
SELECT id, instance_id, lease_token FROM messaging_message
WHERE lease_until IS NOT NULL AND lease_until <= %s ORDER BY lease_until LIMIT %s FOR UPDATE SKIP LOCKED
"""
_OVERDUE = """
SELECT id FROM messaging_message
WHERE status = 'unconfirmed' AND deliver_until <= %s LIMIT %s FOR UPDATE SKIP LOCKED
"""
# Taking a look-up moves its time on, so that two processes do not ask the same thing. Look-ups grow apart: each wait
# is as long as what has passed since the attempt, but the last is not later than the decision.
_UNCONFIRMED = """
UPDATE messaging_message SET next_attempt_at = least(
    %s + least(greatest(%s - attempted_at, interval '5 seconds'), interval '10 minutes'),
    greatest(deliver_until + %s, %s + interval '5 seconds'))
WHERE id IN (
    SELECT id FROM messaging_message WHERE status = 'unconfirmed' AND next_attempt_at <= %s
    ORDER BY next_attempt_at LIMIT %s FOR UPDATE SKIP LOCKED)
RETURNING id
"""


def reconcile_deadlines(*, now: datetime) -> dict[str, int]:
    """Expires what is past its deadline, fails what can never go out, tells what is held, hurries what was late."""
    return {
        "expired": expire(now=now),
        "removed": fail_removed(now=now),
        "held": tell_held(now=now),
        "late": hurry(now=now),
    }


def resolve_unconfirmed(*, now: datetime) -> dict[str, int]:
    """Ends leases that ran out, then asks about every message whose outcome is not known."""
    return {"leases": release_expired_leases(now=now)} | look_up_unconfirmed(now=now)


def expire(*, now: datetime) -> int:
    """Fails every queued message whose deadline has passed."""
    return sum(expirations(now))


def expirations(now: datetime) -> Iterator[int]:
    """The same batch by batch: how many each failed."""
    return in_batches(_EXPIRED, _expire_batch, now)


def _expire_batch(rows: list[Any], now: datetime) -> int:
    refusal = Refusal("deadline", FailureCode.EXPIRED)
    return len(status.move(*(refused(row[0], refusal, now=now) for row in rows)).changed)


_REMOVED = """
SELECT m.id FROM instances_instance i CROSS JOIN LATERAL (
    SELECT id FROM messaging_message
    WHERE instance_id = i.id AND status = 'queued' AND next_attempt_at IS NULL LIMIT %s FOR UPDATE SKIP LOCKED
) AS m
WHERE i.status = 'removed' AND i.status_changed_at <= %s LIMIT %s
"""


def fail_removed(*, now: datetime) -> int:
    """Fails what waits on instances that were removed: nobody will ever send it."""
    refusal = Refusal("instance", FailureCode.INSTANCE_REMOVED)
    with transaction.atomic():
        rows = sql.fetch(_REMOVED, [BATCH, now, BATCH])
        return len(status.move(*(refused(row[0], refusal, now=now) for row in rows)).changed)


_CLOSED = """
SELECT lane.instance_id FROM instances_lane lane JOIN instances_instance i ON i.id = lane.instance_id
CROSS JOIN LATERAL (
    SELECT FROM messaging_message m
    WHERE m.instance_id = lane.instance_id AND m.status = 'queued' AND m.next_attempt_at IS NULL LIMIT 1
) AS work
WHERE (i.status NOT IN ('open', 'removed') OR i.paused) AND lane.held_by <> 'instance' LIMIT %s
"""


def tell_held(*, now: datetime) -> int:
    """Tells, in their timeline, messages of instances that closed while nobody was claiming. Returns instances."""
    closed = [row[0] for row in sql.fetch(_CLOSED, [BATCH])]
    claim(closed, now=now)
    return len(closed)


# Ready for a while on an instance that is free: whatever should have sent it was not there. Few of each instance at a
# time, because a number that sends many without a pause is banned.
_LATE = """
UPDATE messaging_message SET late = true WHERE id IN (
    SELECT head.id FROM instances_lane lane
    JOIN instances_instance i ON i.id = lane.instance_id
    CROSS JOIN LATERAL (
        SELECT m.id FROM messaging_message m
        WHERE m.instance_id = lane.instance_id AND m.status = 'queued' AND m.next_attempt_at IS NULL
          AND m.created_at < %(since)s AND NOT m.late AND m.attempts = 0
        ORDER BY m.urgent DESC, m.project_id, m.deliver_until, m.id LIMIT %(few)s FOR UPDATE SKIP LOCKED
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
    return sum(releases(now))


def releases(now: datetime) -> Iterator[int]:
    """The same batch by batch: how many leases each ended."""
    return in_batches(_LEASES, _release_batch, now)


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


def in_batches(statement: str, handle: Callable[[list[Any], datetime], int], now: datetime) -> Iterator[int]:
    """Locks at most BATCH rows due at `now` and handles them, a transaction each, until a batch is not full.

    Yields what `handle` returns, after the commit.
    """
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement, [now, BATCH])
            rows = cursor.fetchall()
            handled = handle(rows, now)
        yield handled
        if len(rows) < BATCH:
            return


# --- messages whose answer was lost -----------------------------------------------------------------------


def look_up_unconfirmed(*, now: datetime) -> dict[str, int]:
    """Asks providers what became of messages whose answer was lost; what stays unknown, policy decides.

    What is not reached in time is given up without another question.
    """
    counts = ask_about_unconfirmed(now=now)
    counts["given_up"] += sum(give_ups(now))
    return dict(counts)


def ask_about_unconfirmed(*, now: datetime) -> Counter[str]:
    """Asks in batches, for at most LOOK_UP_SECONDS. Returns how many by finding, and how many were `decided`."""
    counts: Counter[str] = Counter()
    until = time.monotonic() + LOOK_UP_SECONDS
    while time.monotonic() < until:
        messages = _take_unconfirmed(now)
        counts += _resolve(messages, now)
        if len(messages) < LOOKED_UP_AT_ONCE:
            break
    return counts


def give_ups(now: datetime) -> Iterator[int]:
    """Gives up, batch by batch, what is still unconfirmed at the last moment. Yields how many."""
    return in_batches(_OVERDUE, _give_up_batch, now - LAST_MOMENT)


def _resolve(messages: Sequence[Message], now: datetime) -> Counter[str]:
    # Asked also when it is given up now: it may have become unconfirmed just before.
    findings = _ask(messages, now)
    resending = _resending_tenants(messages)
    moves = [
        _decided(message, findings.get(message.pk), message.tenant_id in resending, now)
        for message in messages
    ]
    counts = Counter(found.finding.value for found in findings.values())
    counts["decided"] += _apply([move for move in moves if move])
    return counts


def _take_unconfirmed(now: datetime) -> list[Message]:
    ids = [row[0] for row in sql.fetch(_UNCONFIRMED, [now, now, GRACE, now, now, LOOKED_UP_AT_ONCE])]
    # Without the secrets: one that cannot be decrypted would keep all the others from being asked about.
    secrets = ("instance__credentials", "instance__hook_token")
    return list(Message.objects.filter(pk__in=ids).select_related("instance").defer(*secrets))


def _ask(messages: Sequence[Message], now: datetime) -> dict[str, Found]:
    calls = {message.pk: call for message in messages if (call := _question(message, now))}
    answers = perform_all(list(calls.values()))
    return {key: _finding(key, answer) for key, answer in zip(calls, answers, strict=True)}


def _question(message: Message, now: datetime) -> Call[Found] | None:
    """How to ask about a message; None when that cannot even be put together, which is then logged."""
    try:
        provider = PROVIDERS[message.instance.provider]
        if "find" not in provider.supports:
            return None
        return provider.find(account_of(message.instance_id), outbound_of(message), now=now)
    except Exception:
        log.exception("unconfirmed.unusable", message_id=message.pk)
        return None


def _finding(message_id: str, answer: Found | ProviderError) -> Found:
    if isinstance(answer, Found):
        return answer
    log.info("unconfirmed.look_up_failed", message_id=message_id, code=answer.code)
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
        return _queue_again(message, "surely_not_sent", now)
    if now >= message.deliver_until + GRACE:
        return _given_up(message.pk, now)
    if resends and _may_resend(message, now):
        return _queue_again(message, "policy_resend", now)
    return None


def _queue_again(message: Message, why: str, now: datetime) -> Move:
    return Move(
        message_id=message.pk,
        to=Status.QUEUED,
        at=now,
        only_from=frozenset(
            {Status.UNCONFIRMED}
        ),  # another look-up may have been faster, and a worker after it
        detail={"why": why},
    )


def _apply(moves: Sequence[Move]) -> int:
    """All at once; where a provider id turns out to belong to another message, one by one and without that one.

    Returns how many messages changed.
    """
    try:
        return len(status.move(*moves).changed)
    except IntegrityError:
        return sum(_apply_alone(move) for move in moves)


def _apply_alone(move: Move) -> int:
    try:
        return len(status.move(move).changed)
    except IntegrityError:
        log.info("unconfirmed.found_is_of_another", message_id=move.message_id)
        return 0


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


def _given_up(message_id: str, now: datetime) -> Move:
    code = FailureCode.OUTCOME_UNKNOWN
    return Move(
        message_id=message_id,
        to=Status.FAILED,
        at=now,
        only_from=frozenset({Status.UNCONFIRMED}),  # a receipt may have come while the provider was asked
        failure_code=code,
        detail={"code": code},
    )


def _give_up_batch(rows: list[Any], now: datetime) -> int:
    return len(status.move(*(_given_up(row[0], now + LAST_MOMENT) for row in rows)).changed)


def _may_resend(message: Message, now: datetime) -> bool:
    if message.category != Category.OTP or message.attempts > RESENDS:
        return False
    started = message.attempted_at or message.created_at
    return started + RESEND_AFTER <= now < message.deliver_until
