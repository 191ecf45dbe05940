"""Claim: which messages may be sent now, by this process and no other.

One transaction over many instances, and no I/O. Lanes are locked first, so what is in flight, the pace and the turns
are seen as they are; a lane that another process is claiming from is left to it. The lease in the row, not a lock in
Redis, then says who is sending.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from psycopg.types.json import Jsonb

from instances import breaking
from instances.accounts import account_of
from instances.models import Lane
from instances.providers.base import Account, OutboundMessage
from messaging import gates, status, windows
from messaging.gates import Hold, Refusal
from messaging.loading import Load, Taken, loads_of, occupy
from messaging.models import FailureCode, Status
from messaging.outbound import outbound
from messaging.picking import LaneRow, Passing, Picked, lock_lanes, pick
from messaging.recipients import Recipients, comment_gate, window_gate
from messaging.status import Move

log = structlog.get_logger(__name__)

HELD_AT_ONCE = 200
REFUSED_AT_ONCE = 100
RESTS = timedelta(minutes=5)
SOON = timedelta(seconds=1)  # what comes later, the pulse finds


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A message that this process, and no other, may now send."""

    message: OutboundMessage
    account: Account
    provider: str
    instance_id: int
    server_id: int | None
    lease_token: UUID
    claimed_at: datetime
    attempt: int
    deliver_until: datetime
    typing_ms: int
    expected_at: datetime | None  # the forecast when it was accepted
    probe: bool  # whether it goes through a half-open breaker
    more: bool = False  # whether the lane may take another message at once
    again_in: float | None = None  # else in how many seconds, where that is but a moment
    open_until: datetime | None = None  # when the person's window closes, where that matters to the message


def claim(instance_ids: Iterable[int], *, now: datetime) -> list[Claim]:
    """Takes the next due message of each of `instance_ids`, or as many as its provider's rate lets through, and makes
    them `sending`, each under a fresh lease.

    Messages that a gate refuses become `failed` on the way; holds are told in the timeline, once per reason. What
    cannot be claimed because of a row that makes no sense is set aside, so that it never keeps others from it.
    """
    with transaction.atomic():
        passing = _pass_lanes(lock_lanes(instance_ids), now)
        taken, claims = _take(passing, now)
        _give_back_probes(passing, claims)
        started = _start(claims, now)
        loads = loads_of([each for each in taken if each.picked.id in started], now)
        occupy(loads)
    return _followed([each for each in claims if each.message.id in started], loads, now)


# --- lanes ------------------------------------------------------------------------------------------------


def _pass_lanes(lanes: Sequence[LaneRow], now: datetime) -> Passing:
    """The lanes whose gates are open. Probes are taken in the order of servers, so that two claims cannot deadlock."""
    passing = {}
    for lane in sorted(lanes, key=lambda lane: (lane.server_id or 0, lane.instance_id)):
        try:
            hold, only_urgent = _gate(lane, now)
        except Exception:
            log.exception("claim.lane_unusable", instance_id=lane.instance_id)
            _rest(lane, now + RESTS)
            continue
        if hold is not None:
            _note_hold(lane, hold, now)
        if (hold is None or only_urgent) and (not lane.half_open() or _takes_probe(lane, now)):
            passing[lane.instance_id] = (lane, only_urgent)
    return passing


def _gate(lane: LaneRow, now: datetime) -> tuple[Hold | None, bool]:
    state = lane.state()
    hold = gates.lane_gate(state, now=now)
    return hold, hold is not None and gates.lane_gate(state, now=now, urgent=True) is None


def _takes_probe(lane: LaneRow, now: datetime) -> bool:
    return lane.server_id is not None and breaking.take_probe(lane.server_id, now=now)


def _give_back_probes(passing: Passing, claims: Sequence[Claim]) -> None:
    """A probe that sends nothing, because there was nothing or it was refused, would hold its server for nothing."""
    used = {claim.instance_id for claim in claims}
    for instance_id, (lane, _only_urgent) in passing.items():
        if lane.half_open() and lane.server_id is not None and instance_id not in used:
            breaking.give_back_probe(lane.server_id)


def _rest(lane: LaneRow, until: datetime) -> None:
    """Spares a lane the pulse of every second."""
    Lane.objects.filter(pk=lane.instance_id).update(next_send_at=until, next_urgent_at=until)


# --- holds ------------------------------------------------------------------------------------------------

# A gate of the whole instance is told to those who wait, when it closes; pace and concurrency are the queue's normal
# course, and `why` says so. `held_by` on the lane is the gate that is closed now, on a message what it was told.
TOLD = frozenset({"instance", "breaker", "daily_cap"})

_HOLD = """
WITH held AS (
    UPDATE messaging_message SET held_by = %(gate)s WHERE id IN (
        SELECT id FROM messaging_message
        WHERE instance_id = %(instance)s AND status = 'queued' AND next_attempt_at IS NULL
        ORDER BY urgent DESC, project_id, deliver_until, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
      AND held_by <> %(gate)s
    RETURNING id, tenant_id
)
INSERT INTO messaging_messageevent (message_id, tenant_id, kind, detail, at, applied)
SELECT id, tenant_id, 'held', %(detail)s, %(now)s, true FROM held
"""


def _note_hold(lane: LaneRow, hold: Hold, now: datetime) -> None:
    """Keeps the closed gate on the lane and tells those who wait, in their timeline, until when and why."""
    if hold.gate not in TOLD:
        return
    if hold.gate == "daily_cap" and hold.until is not None:
        _rest(lane, min(hold.until, now + RESTS))  # not until midnight: a cap may be raised
    if (lane.held_by, lane.held_until) != (hold.gate, hold.until):
        Lane.objects.filter(pk=lane.instance_id).update(held_by=hold.gate, held_until=hold.until)
    if lane.held_by == hold.gate:
        return
    until = {"until": hold.until.isoformat()} if hold.until else {}
    values: dict[str, Any] = {
        "gate": hold.gate,
        "instance": lane.instance_id,
        "limit": HELD_AT_ONCE,
        "detail": Jsonb({"gate": hold.gate, "reason": hold.reason} | until),
        "now": now,
    }
    with connection.cursor() as cursor:
        cursor.execute(_HOLD, values)


# --- messages ---------------------------------------------------------------------------------------------


def _take(passing: Passing, now: datetime) -> tuple[list[Taken], list[Claim]]:
    """The next messages of each lane. Heads that are refused must not cost their queue a turn: the lane picks again."""
    taken: list[Taken] = []
    claims: list[Claim] = []
    recipients, done = Recipients(now), set[int]()
    for _round in range(REFUSED_AT_ONCE):
        picked = pick(passing, now)
        recipients.look_up([(each.instance_id, each.to) for each in picked if _has_gates(passing, each)])
        for message in picked:
            lane, _only_urgent = passing[message.instance_id]
            if _stopped(message, lane, recipients, now):
                continue
            if _try_to_take(message, lane, recipients, taken, claims):
                done.add(message.instance_id)
        passing = {message.instance_id: passing[message.instance_id] for message in picked}
        passing = {key: lane for key, lane in passing.items() if key not in done}
        if not passing:
            break
    recipients.write()
    return taken, claims


def _has_gates(passing: Passing, message: Picked) -> bool:
    return windows.applies_to(passing[message.instance_id][0].provider)


def _stopped(message: Picked, lane: LaneRow, recipients: Recipients, now: datetime) -> bool:
    """Whether a gate of the message or the person keeps it back; what follows from that is written down."""
    stop: Refusal | datetime | None
    stop = gates.message_gate(deliver_until=message.deliver_until, opted_out=message.opted_out, now=now)
    if stop is None and windows.applies_to(lane.provider):
        stop = _person_gates(message, lane, recipients, now)
    if isinstance(stop, datetime):
        _set_aside(message, stop, now)
    elif stop is not None:
        status.move(refused(message.id, stop, now=now))
    return stop is not None


def _person_gates(
    message: Picked, lane: LaneRow, recipients: Recipients, now: datetime
) -> Refusal | datetime | None:
    """A refusal, or until when to wait. What cannot be read is refused: it would hold its queue up to its deadline."""
    try:
        refusal = window_gate(open_until=_open_until(message, lane, recipients), now=now)
        return refusal or _held_until(message, lane, recipients) or _comment_gate(message, now)
    except DatabaseError:
        raise
    except Exception:
        log.exception("claim.message_unusable", message_id=message.id)
        return Refusal("content", FailureCode.INVALID_CONTENT)


def _held_until(message: Picked, lane: LaneRow, recipients: Recipients) -> datetime | None:
    paced = windows.paces_people(lane.provider)
    return recipients.held_until(message.instance_id, message.to) if paced else None


def _comment_gate(message: Picked, now: datetime) -> Refusal | None:
    return comment_gate(
        instance_id=message.instance_id, message_id=message.id, content=_content(message), now=now
    )


def _content(message: Picked) -> Mapping[str, Any]:
    """Empty for what is none; that it cannot be sent is found out where it is put together."""
    content = json.loads(message.content)
    return content if isinstance(content, dict) else {}


def _open_until(message: Picked, lane: LaneRow, recipients: Recipients) -> datetime | None:
    """When the window closes in which this message may go; None for one that may always go."""
    content = _content(message)
    if not windows.is_free_form(content):
        return None
    lasts = windows.lasts_for(content, provider=lane.provider)
    return recipients.state(message.instance_id, message.to).open_until(since=lane.created_at, lasts=lasts)


_SET_ASIDE = """
WITH held AS (
    UPDATE messaging_message m SET next_attempt_at = %(until)s, held_by = %(gate)s
    FROM messaging_message before WHERE m.id = %(id)s AND before.id = m.id
    RETURNING m.id, m.tenant_id, before.held_by
)
INSERT INTO messaging_messageevent (message_id, tenant_id, kind, detail, at, applied)
SELECT id, tenant_id, 'held', %(detail)s, %(now)s, true FROM held WHERE held_by <> %(gate)s
"""
PAIR_RATE = "pair_rate"


def _set_aside(message: Picked, until: datetime, now: datetime) -> None:
    """Leaves a message for later, and lets the others of its lane pass."""
    detail = Jsonb({"gate": PAIR_RATE, "reason": "too many to one person", "until": until.isoformat()})
    values: dict[str, Any] = {
        "id": message.id,
        "gate": PAIR_RATE,
        "until": until,
        "detail": detail,
        "now": now,
    }
    with connection.cursor() as cursor:
        cursor.execute(_SET_ASIDE, values)


def refused(message_id: str, refusal: Refusal, *, now: datetime) -> Move:
    """What a refusal does to its message."""
    return Move(
        message_id=message_id,
        to=Status.FAILED,
        at=now,
        only_from=status.WAITING,
        failure_code=refusal.code,
        detail={"gate": refusal.gate, "code": refusal.code},
    )


def _try_to_take(
    picked: Picked, lane: LaneRow, recipients: Recipients, taken: list[Taken], claims: list[Claim]
) -> bool:
    """False when the lane should pick again: the message makes no sense. An instance that makes none rests."""
    now = recipients.now
    try:
        message = outbound(
            id=picked.id,
            to=picked.to,
            recipient_id=picked.recipient_id,
            content=json.loads(picked.content),
            attempt=picked.attempts + 1,
        )
    except Exception:
        log.exception("claim.message_unusable", message_id=picked.id)
        status.move(refused(picked.id, Refusal("content", FailureCode.INVALID_CONTENT), now=now))
        return False
    try:
        each = Taken.of(picked, lane, now)
        claim = _claim(each, message, account_of(picked.instance_id), now)
    except Exception:
        log.exception("claim.instance_unusable", instance_id=picked.instance_id)
        _rest(lane, now + RESTS)
        return True
    if windows.applies_to(lane.provider):
        claim = _with_person(claim, picked, lane, recipients)
    claims.append(claim)
    taken.append(each)
    return True


def _with_person(claim: Claim, picked: Picked, lane: LaneRow, recipients: Recipients) -> Claim:
    """The claim with what is known of the person; counted against the rate to that person."""
    if windows.paces_people(lane.provider):
        recipients.use_up(picked.instance_id, picked.to)
    state = recipients.state(picked.instance_id, picked.to)
    return replace(
        claim,
        message=replace(claim.message, last_received_id=state.received_id),
        typing_ms=claim.typing_ms if state.received_id else 0,  # it is shown as an answer to a message
        open_until=_open_until(picked, lane, recipients),
    )


def _claim(taken: Taken, message: OutboundMessage, account: Account, now: datetime) -> Claim:
    picked, lane = taken.picked, taken.lane
    return Claim(
        message=message,
        account=account,
        provider=lane.provider,
        instance_id=picked.instance_id,
        server_id=lane.server_id,
        lease_token=uuid4(),
        claimed_at=now,
        attempt=picked.attempts + 1,
        deliver_until=picked.deliver_until,
        # A person waits for an urgent message: no play-acting before it.
        typing_ms=0 if picked.urgent else lane.typing_ms,
        expected_at=picked.expected_at if picked.attempts == 0 else None,
        probe=lane.half_open(),
    )


def _start(claims: Sequence[Claim], now: datetime) -> frozenset[str]:
    leases = {claim.message.id: claim.lease_token for claim in claims}
    return status.start(leases, now=now, lease_until=now + settings.LEASE) if leases else frozenset()


def _followed(claims: Sequence[Claim], loads: Sequence[Load], now: datetime) -> list[Claim]:
    """The claims; the last one of each lane says when there may be more."""
    last = {load.last.picked.id: load for load in loads if not load.full()}
    return [
        _with_next(claim, last[claim.message.id], now) if claim.message.id in last else claim
        for claim in claims
    ]


def _with_next(claim: Claim, load: Load, now: datetime) -> Claim:
    wait = load.next_send_at - now
    if wait <= timedelta():
        return replace(claim, more=True)
    return replace(claim, again_in=wait.total_seconds()) if wait <= SOON else claim
