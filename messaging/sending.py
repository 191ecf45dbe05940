"""Claim → gates → call → settle: how a queued message reaches its provider exactly once.

`claim()` and `settle()` are transactions over many messages at a time and do no I/O; between them, with no lock held,
`messaging/dispatching.py` performs the provider's calls. The lease in the row, not a lock in Redis, says who is
sending: whoever loses it may still report what it learned, but no longer decides.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from psycopg.types.json import Jsonb

from instances.accounts import account_of
from instances.providers.base import Account, OutboundMessage, Outcome, ProviderError, Receipt
from messaging import gates, status
from messaging.gates import Hold, LaneState
from messaging.models import FailureCode, Status
from messaging.rendering import buttons_of
from messaging.retry import ATTEMPTS, next_attempt
from messaging.status import Move

FIRST_LOOK_UP = timedelta(seconds=5)
HELD_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Claim:
    """A message that this process, and no other, may now send."""

    message: OutboundMessage
    account: Account
    provider: str
    instance_id: int
    lease_token: UUID
    attempt: int
    deliver_until: datetime
    typing_ms: int


@dataclass(frozen=True, slots=True)
class Settlement:
    """What came of a claim: a Receipt, a ProviderError, or a gate that closed before the call."""

    claim: Claim
    result: Receipt | ProviderError | gates.Refusal


# --- claim ------------------------------------------------------------------------------------------------

_LANES = """
SELECT lane.instance_id, lane.in_flight, lane.next_send_at, i.status, i.paused, i.concurrency,
       i.pace_least_seconds, i.pace_most_seconds, i.urgent_gap_seconds, i.typing_ms, i.provider
FROM instances_lane lane JOIN instances_instance i ON i.id = lane.instance_id
WHERE lane.instance_id = ANY(%s)
ORDER BY lane.instance_id
FOR UPDATE OF lane SKIP LOCKED
"""

# The next message of each instance: urgent first; then the project that was served longest ago; then the earliest
# deadline; then age. Projects are found by a loose scan of the ready index, so the cost grows with the projects that
# have work, not with the queue. Both terms of that index's predicate stand as literals everywhere: with the status as
# a parameter the generic plan is a scan of the whole table.
_PICK = """
SELECT pick.* FROM unnest(%s::bigint[]) AS lane (instance_id) CROSS JOIN LATERAL (
    WITH RECURSIVE top AS (
        SELECT urgent FROM messaging_message
        WHERE instance_id = lane.instance_id AND status = 'queued' AND next_attempt_at IS NULL
        ORDER BY urgent DESC LIMIT 1
    ), waiting AS (
        (SELECT project_id FROM messaging_message
         WHERE instance_id = lane.instance_id AND urgent = (SELECT urgent FROM top)
           AND status = 'queued' AND next_attempt_at IS NULL
         ORDER BY project_id LIMIT 1)
        UNION ALL
        SELECT (SELECT m.project_id FROM messaging_message m
                WHERE m.instance_id = lane.instance_id AND m.urgent = (SELECT urgent FROM top)
                  AND m.status = 'queued' AND m.next_attempt_at IS NULL AND m.project_id > waiting.project_id
                ORDER BY m.project_id LIMIT 1)
        FROM waiting WHERE waiting.project_id IS NOT NULL
    ), turn AS (
        SELECT waiting.project_id FROM waiting
        LEFT JOIN messaging_projectturn t
               ON t.instance_id = lane.instance_id AND t.project_id = waiting.project_id
        WHERE waiting.project_id IS NOT NULL
        ORDER BY coalesce(t.served_at, '-infinity'), waiting.project_id LIMIT 1
    )
    SELECT m.instance_id, m.id, m.project_id, m.urgent, m.deliver_until, m.attempts, m."to", m.recipient_id,
           m.content,
           EXISTS (SELECT FROM messaging_optin o WHERE o.tenant_id = m.tenant_id AND o.number = m."to"
                   AND o.revoked_at IS NOT NULL) AS opted_out
    FROM messaging_message m
    WHERE m.instance_id = lane.instance_id AND m.urgent = (SELECT urgent FROM top)
      AND m.project_id = (SELECT project_id FROM turn)
      AND m.status = 'queued' AND m.next_attempt_at IS NULL
    ORDER BY m.deliver_until, m.id LIMIT 1
    FOR UPDATE SKIP LOCKED
) AS pick
"""

# clock_timestamp(), not now(): two turns in one transaction must differ. Sorted input: two batches cannot deadlock.
_TAKE_TURNS = """
INSERT INTO messaging_projectturn (instance_id, project_id, served_at)
SELECT instance_id, project_id, clock_timestamp() FROM unnest(%s::bigint[], %s::bigint[]) AS t (instance_id, project_id)
ORDER BY 1, 2
ON CONFLICT (instance_id, project_id) DO UPDATE SET served_at = excluded.served_at
"""

_OCCUPY = """
UPDATE instances_lane lane SET in_flight = lane.in_flight + 1, next_send_at = taken.next_send_at
FROM unnest(%s::bigint[], %s::timestamptz[]) AS taken (instance_id, next_send_at)
WHERE lane.instance_id = taken.instance_id
"""

_VACATE = """
UPDATE instances_lane SET in_flight = greatest(in_flight - freed.count, 0)
FROM unnest(%s::bigint[], %s::int[]) AS freed (instance_id, count)
WHERE instances_lane.instance_id = freed.instance_id
"""


@dataclass(frozen=True, slots=True)
class _Lane:
    """An instance's lane and settings, in the order of _LANES."""

    instance_id: int
    in_flight: int
    next_send_at: datetime
    status: str
    paused: bool
    concurrency: int
    pace_least_seconds: float
    pace_most_seconds: float
    urgent_gap_seconds: float
    typing_ms: int
    provider: str

    def state(self) -> LaneState:
        return LaneState(self.status, self.paused, self.in_flight, self.concurrency, self.next_send_at)

    def next_send(self, *, urgent: bool, now: datetime) -> datetime:
        """When the send after one that starts now may start: a random pace, or the short gap after an urgent one."""
        if urgent:
            return now + timedelta(seconds=self.urgent_gap_seconds)
        return now + timedelta(seconds=random.uniform(self.pace_least_seconds, self.pace_most_seconds))


@dataclass(frozen=True, slots=True)
class _Picked:
    """The next message of a lane, in the order of _PICK."""

    instance_id: int
    id: str
    project_id: int
    urgent: bool
    deliver_until: datetime
    attempts: int
    to: str
    recipient_id: str
    content: str  # JSON: Django hands out jsonb of plain cursors as text
    opted_out: bool


def claim(instance_ids: Iterable[int], *, now: datetime) -> list[Claim]:
    """Takes at most one due message for each of `instance_ids` and makes it `sending`, under a fresh lease.

    One transaction. Lanes are locked first, so what is in flight, the pace and the turns are seen as they are; a lane
    that another process is claiming from is left to it. Messages that a gate refuses become `failed` on the way.
    """
    with transaction.atomic():
        lanes = _lock_lanes(instance_ids)
        holds = {lane.instance_id: gates.lane_gate(lane.state(), now=now) for lane in lanes}
        _note_holds({key: hold for key, hold in holds.items() if hold and hold.gate == "instance"}, now=now)
        open_lanes = {lane.instance_id: lane for lane in lanes if holds[lane.instance_id] is None}
        picked = _pick(open_lanes)
        passed = _refuse_or_pass(picked, now=now)
        claims = [_claim(message, open_lanes[message.instance_id]) for message in passed]
        status.move(*(_to_sending(claim, now) for claim in claims))
        _occupy(passed, open_lanes, now)
    return claims


def _lock_lanes(instance_ids: Iterable[int]) -> list[_Lane]:
    with connection.cursor() as cursor:
        cursor.execute(_LANES, [list(instance_ids)])
        return [_Lane(*row) for row in cursor.fetchall()]


def _pick(lanes: Mapping[int, _Lane]) -> list[_Picked]:
    if not lanes:
        return []
    with connection.cursor() as cursor:
        cursor.execute(_PICK, [list(lanes)])
        return [_Picked(*row) for row in cursor.fetchall()]


def _refuse_or_pass(picked: Sequence[_Picked], *, now: datetime) -> list[_Picked]:
    passed, refused = [], []
    for message in picked:
        refusal = gates.message_gate(
            deliver_until=message.deliver_until, opted_out=message.opted_out, now=now
        )
        if refusal is None:
            passed.append(message)
        else:
            refused.append(_refused(message.id, refusal, now))
    status.move(*refused)
    return passed


def _refused(message_id: str, refusal: gates.Refusal, now: datetime, lease: UUID | None = None) -> Move:
    return Move(
        message_id=message_id,
        to=Status.FAILED,
        at=now,
        lease_token=lease,
        failure_code=refusal.code,
        detail={"gate": refusal.gate, "code": refusal.code},
    )


def _claim(picked: _Picked, lane: _Lane) -> Claim:
    content = json.loads(picked.content)
    message = OutboundMessage(
        id=picked.id,
        to=picked.to,
        recipient_id=picked.recipient_id,
        text=content["text"],
        title=content.get("title", ""),
        footer=content.get("footer", ""),
        buttons=buttons_of(content),
    )
    return Claim(
        message=message,
        account=account_of(picked.instance_id),
        provider=lane.provider,
        instance_id=picked.instance_id,
        lease_token=uuid4(),
        attempt=picked.attempts + 1,
        deliver_until=picked.deliver_until,
        # A person waits for an urgent message: no play-acting before it.
        typing_ms=0 if picked.urgent else lane.typing_ms,
    )


def _to_sending(claim: Claim, now: datetime) -> Move:
    return Move(
        message_id=claim.message.id,
        to=Status.SENDING,
        at=now,
        new_lease=claim.lease_token,
        lease_until=now + settings.LEASE,
    )


def _occupy(passed: Sequence[_Picked], lanes: Mapping[int, _Lane], now: datetime) -> None:
    if not passed:
        return
    instance_ids = [message.instance_id for message in passed]
    times = [lanes[message.instance_id].next_send(urgent=message.urgent, now=now) for message in passed]
    with connection.cursor() as cursor:
        cursor.execute(_OCCUPY, [instance_ids, times])
        cursor.execute(_TAKE_TURNS, [instance_ids, [message.project_id for message in passed]])


# --- holds ------------------------------------------------------------------------------------------------

# Once per reason, not once per try: `held_by` remembers what the timeline already says.
_HOLD = """
WITH held AS (
    UPDATE messaging_message SET held_by = %(gate)s WHERE id IN (
        SELECT id FROM messaging_message
        WHERE instance_id = %(instance)s AND status = 'queued' AND next_attempt_at IS NULL AND held_by <> %(gate)s
        ORDER BY urgent DESC, project_id, deliver_until, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
    RETURNING id, tenant_id
)
INSERT INTO messaging_messageevent (message_id, tenant_id, kind, detail, at, applied)
SELECT id, tenant_id, 'held', %(detail)s, %(now)s, true FROM held
"""


def _note_holds(holds: Mapping[int, Hold], *, now: datetime) -> None:
    """Tells waiting messages, in their timeline, that their instance holds them."""
    with connection.cursor() as cursor:
        for instance_id, hold in holds.items():
            detail = Jsonb({"gate": hold.gate, "reason": hold.reason})
            cursor.execute(
                _HOLD,
                {
                    "gate": hold.gate,
                    "instance": instance_id,
                    "limit": HELD_AT_ONCE,
                    "detail": detail,
                    "now": now,
                },
            )


# --- settle -----------------------------------------------------------------------------------------------


def settle(settlements: Sequence[Settlement], *, now: datetime) -> None:
    """Records what came of claims and frees their lanes, in one transaction."""
    try:
        _settle(settlements, now)
    except IntegrityError:
        # Two messages with one provider id. One by one, only the impostor stays without it.
        for settlement in settlements:
            _settle_alone(settlement, now)


def _settle_alone(settlement: Settlement, now: datetime) -> None:
    try:
        _settle([settlement], now)
    except IntegrityError:
        unnamed = Receipt(provider_message_id="", recipient_id="", status=Status.SUBMITTED)
        _settle([Settlement(settlement.claim, unnamed)], now)


def _settle(settlements: Sequence[Settlement], now: datetime) -> None:
    with transaction.atomic():
        moved = status.move(*(verdict(settlement, now=now) for settlement in settlements))
        vacate(
            settlement.claim.instance_id
            for settlement in settlements
            if settlement.claim.lease_token in moved.released
        )


def vacate(instance_ids: Iterable[int]) -> None:
    """Takes ended sends off their lanes: one for each time an id is given. Each lease must be counted once."""
    counts = sorted(Counter(instance_ids).items())
    if not counts:
        return
    with connection.cursor() as cursor:
        cursor.execute(_VACATE, [[key for key, _count in counts], [count for _key, count in counts]])


def verdict(settlement: Settlement, *, now: datetime) -> Move:
    """What a claim's result means for its message: the table of DESIGN §4, as data. Pure."""
    claim, result = settlement.claim, settlement.result
    if isinstance(result, Receipt):
        return Move(
            message_id=claim.message.id,
            to=result.status,
            at=now,
            lease_token=claim.lease_token,
            provider_message_id=result.provider_message_id,
            recipient_id=result.recipient_id,
        )
    if isinstance(result, gates.Refusal):
        return _refused(claim.message.id, result, now, lease=claim.lease_token)
    return _VERDICTS[result.outcome](claim, result, now)


def _rejected(claim: Claim, error: ProviderError, now: datetime) -> Move:
    code = error.code if error.code in FailureCode.values else FailureCode.REJECTED
    return Move(
        message_id=claim.message.id,
        to=Status.FAILED,
        at=now,
        lease_token=claim.lease_token,
        failure_code=code,
        failure_detail=error.detail,
        detail={"code": code, "reason": error.detail},
    )


def _retry(claim: Claim, error: ProviderError, now: datetime) -> Move:
    at = next_attempt(
        attempts=claim.attempt, now=now, deliver_until=claim.deliver_until, retry_after=error.retry_after
    )
    if at is None:
        return _given_up(claim, error, now)
    return Move(
        message_id=claim.message.id,
        to=Status.QUEUED,
        at=now,
        lease_token=claim.lease_token,
        next_attempt_at=at,
        detail={
            "why": "retry",
            "code": error.code,
            "reason": error.detail,
            "attempt": claim.attempt,
            "next_attempt_at": at.isoformat(),
        },
    )


def _given_up(claim: Claim, error: ProviderError, now: datetime) -> Move:
    exhausted = claim.attempt >= ATTEMPTS
    code = FailureCode.ATTEMPTS_EXHAUSTED if exhausted else FailureCode.EXPIRED
    return Move(
        message_id=claim.message.id,
        to=Status.FAILED,
        at=now,
        lease_token=claim.lease_token,
        failure_code=code,
        failure_detail=error.detail,
        detail={"code": code, "reason": error.detail, "attempt": claim.attempt},
    )


def _instance_down(claim: Claim, error: ProviderError, now: datetime) -> Move:
    """Back to the queue without costing an attempt: the instance is degraded, and its gate holds until it opens."""
    return Move(
        message_id=claim.message.id,
        to=Status.QUEUED,
        at=now,
        lease_token=claim.lease_token,
        refund_attempt=True,
        detail={"why": "instance_down", "code": error.code, "reason": error.detail},
    )


def _unknown(claim: Claim, error: ProviderError, now: datetime) -> Move:
    return Move(
        message_id=claim.message.id,
        to=Status.UNCONFIRMED,
        at=now,
        lease_token=claim.lease_token,
        next_attempt_at=now + FIRST_LOOK_UP,
        detail={"code": error.code, "reason": error.detail, "attempt": claim.attempt},
    )


_VERDICTS = {
    Outcome.REJECTED: _rejected,
    Outcome.RETRY: _retry,
    Outcome.INSTANCE_DOWN: _instance_down,
    Outcome.UNKNOWN: _unknown,
}
