"""Claim: which messages may be sent now, by this process and no other.

One transaction over many instances, and no I/O. Lanes are locked first, so what is in flight, the pace and the turns
are seen as they are; a lane that another process is claiming from is left to it. The lease in the row, not a lock in
Redis, then says who is sending.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from django.db import connection, transaction
from psycopg.types.json import Jsonb

from accounts.models import zone_of
from instances import breaking
from instances.accounts import account_of
from instances.models import Lane
from instances.providers.base import Account, OutboundMessage
from messaging import gates, rates, status, windows
from messaging.gates import Hold, LaneState, Refusal
from messaging.models import FailureCode, Status
from messaging.outbound import outbound
from messaging.recipients import Recipients, comment_gate, window_gate
from messaging.status import Move
from pilot import sql

log = structlog.get_logger(__name__)

HELD_AT_ONCE = 200
REFUSED_AT_ONCE = 100
TAKEN_AT_ONCE = 100  # from one lane
SOON = timedelta(seconds=1)  # what comes later, the pulse finds
RESTS = timedelta(minutes=5)


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


_LANES = """
SELECT lane.instance_id, lane.in_flight, lane.next_send_at, lane.next_urgent_at, lane.held_by, lane.held_until,
       lane.turn, lane.sent_on, lane.sent_count, i.status, i.paused, i.concurrency, i.pace_least_seconds,
       i.pace_most_seconds, i.urgent_gap_seconds, i.daily_cap, i.warm_up_from, i.typing_ms, i.provider, i.server_id,
       t.time_zone, b.open_until, b.probe_until, i.messages_per_second, i.created_at
FROM instances_lane lane
JOIN instances_instance i ON i.id = lane.instance_id
JOIN accounts_tenant t ON t.id = i.tenant_id
LEFT JOIN instances_breaker b ON b.server_id = i.server_id
WHERE lane.instance_id = ANY(%s)
ORDER BY lane.instance_id
FOR UPDATE OF lane SKIP LOCKED
"""

# The next message of each instance: urgent first; then the project whose turn it is; then the earliest deadline; then
# age. Projects are found by a loose scan of the ready index, so the cost grows with the projects that have work, not
# with the queue. Both terms of that index's predicate stand as literals everywhere: with the status as a parameter the
# generic plan is a scan of the whole table.
_PICK = """
SELECT pick.* FROM unnest(%s::bigint[], %s::boolean[], %s::float8[]) AS lane (instance_id, only_urgent, turn)
CROSS JOIN LATERAL (
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
        SELECT waiting.project_id, greatest(coalesce(t.turn, 0), lane.turn) AS start
        FROM waiting
        LEFT JOIN messaging_projectturn t
               ON t.instance_id = lane.instance_id AND t.project_id = waiting.project_id
        WHERE waiting.project_id IS NOT NULL
        ORDER BY start, coalesce(t.turn, 0), waiting.project_id LIMIT 1
    )
    SELECT m.instance_id, m.id, m.project_id, turn.start, p.weight, m.urgent, m.late, m.deliver_until, m.attempts,
           m.expected_at, m."to", m.recipient_id, m.content,
           m.source <> 'opt_out' AND EXISTS (
               SELECT FROM messaging_optin o
               WHERE o.tenant_id = m.tenant_id AND o.number = m."to" AND o.revoked_at IS NOT NULL) AS opted_out
    FROM messaging_message m, turn, accounts_project p
    WHERE m.instance_id = lane.instance_id AND m.urgent = (SELECT urgent FROM top)
      AND m.project_id = (SELECT project_id FROM turn) AND p.id = m.project_id
      AND m.status = 'queued' AND m.next_attempt_at IS NULL
      AND ((SELECT urgent FROM top) OR NOT lane.only_urgent)
    ORDER BY m.deliver_until, m.id LIMIT 1
    FOR UPDATE OF m SKIP LOCKED
) AS pick
"""

# The same, for lanes that may take several at once: the next ones of one project. Apart from the other, because a limit
# that is not known when the statement is planned may choose another plan.
_PICK_MANY = (
    _PICK.replace("%s::float8[]) AS lane (instance_id, only_urgent, turn)",
                  "%s::float8[], %s::int[]) AS lane (instance_id, only_urgent, turn, most)")
    .replace("ORDER BY m.deliver_until, m.id LIMIT 1", "ORDER BY m.deliver_until, m.id LIMIT lane.most")
)  # fmt: skip

_OCCUPY = """
WITH taken AS (
    SELECT * FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::float8[], %s::date[], %s::bigint[],
                         %s::float8[], %s::int[])
        AS message (instance_id, next_send_at, next_urgent_at, start, sent_on, project_id, ends, count)
), turns AS (
    INSERT INTO messaging_projectturn (instance_id, project_id, turn)
    SELECT instance_id, project_id, ends FROM taken ORDER BY 1, 2
    ON CONFLICT (instance_id, project_id) DO UPDATE SET turn = excluded.turn
)
UPDATE instances_lane lane SET in_flight = lane.in_flight + taken.count, next_send_at = taken.next_send_at,
       next_urgent_at = taken.next_urgent_at, turn = taken.start, sent_on = taken.sent_on,
       held_by = '', held_until = NULL,
       sent_count = CASE WHEN lane.sent_on = taken.sent_on THEN lane.sent_count ELSE 0 END + taken.count
FROM taken WHERE lane.instance_id = taken.instance_id
"""


@dataclass(frozen=True, slots=True)
class _Lane:
    """An instance's lane and settings, in the order of _LANES."""

    instance_id: int
    in_flight: int
    next_send_at: datetime
    next_urgent_at: datetime
    held_by: str
    held_until: datetime | None
    turn: float
    sent_on: date | None
    sent_count: int
    status: str
    paused: bool
    concurrency: int
    pace_least_seconds: float
    pace_most_seconds: float
    urgent_gap_seconds: float
    daily_cap: int | None
    warm_up_from: date | None
    typing_ms: int
    provider: str
    server_id: int | None
    time_zone: str
    breaker_open_until: datetime | None
    breaker_probe_until: datetime | None
    messages_per_second: int | None
    created_at: datetime

    def most(self, now: datetime) -> int:
        """How many messages may leave at once: one, unless the provider lets the lane have a rate."""
        if not self.messages_per_second:
            return 1
        allowed = rates.allowed(self.next_send_at, per_second=self.messages_per_second, now=now)
        return max(min(allowed, self.concurrency - self.in_flight, TAKEN_AT_ONCE, self._left_today(now)), 1)

    def _left_today(self, now: datetime) -> int:
        today = now.astimezone(zone_of(self.time_zone)).date()
        most = gates.allowance(daily_cap=self.daily_cap, warm_up_from=self.warm_up_from, today=today)
        return TAKEN_AT_ONCE if most is None else most - (self.sent_count if self.sent_on == today else 0)

    def state(self) -> LaneState:
        """The lane as the gates see it."""
        return LaneState(
            status=self.status,
            paused=self.paused,
            in_flight=self.in_flight,
            concurrency=self.concurrency,
            next_send_at=self.next_send_at,
            next_urgent_at=self.next_urgent_at,
            daily_cap=self.daily_cap,
            warm_up_from=self.warm_up_from,
            sent_on=self.sent_on,
            sent_count=self.sent_count,
            time_zone=self.time_zone,
            breaker_open_until=self.breaker_open_until,
            breaker_probe_until=self.breaker_probe_until,
        )

    def half_open(self) -> bool:
        """Whether a send needs the breaker's probe; asked only of lanes whose gates are open."""
        return self.breaker_open_until is not None


@dataclass(frozen=True, slots=True)
class _Picked:
    """The next message of a lane, in the order of _PICK."""

    instance_id: int
    id: str
    project_id: int
    start: float
    weight: int
    urgent: bool
    late: bool
    deliver_until: datetime
    attempts: int
    expected_at: datetime | None
    to: str
    recipient_id: str
    content: str  # JSON: Django hands out jsonb of plain cursors as text
    opted_out: bool


@dataclass(frozen=True, slots=True)
class _Taken:
    """A message that passed, and what its lane looks like after it."""

    picked: _Picked
    lane: _Lane
    next_send_at: datetime
    next_urgent_at: datetime
    sent_on: date

    @classmethod
    def of(cls, picked: _Picked, lane: _Lane, now: datetime) -> _Taken:
        gap = now + timedelta(seconds=lane.urgent_gap_seconds)
        pace = now + timedelta(seconds=random.uniform(lane.pace_least_seconds, lane.pace_most_seconds))
        # An urgent message goes between the others: it may delay the next one by its gap, never bring it forward.
        after_urgent = max(lane.next_send_at, gap)
        next_send_at = now if picked.late else after_urgent if picked.urgent else pace
        if lane.messages_per_second:
            next_send_at = gap = lane.next_send_at  # _Load moves it on by the rate
        today = now.astimezone(zone_of(lane.time_zone)).date()
        return cls(picked, lane, next_send_at, now if picked.late else gap, today)


def claim(instance_ids: Iterable[int], *, now: datetime) -> list[Claim]:
    """Takes at most one due message for each of `instance_ids` and makes it `sending`, under a fresh lease.

    Messages that a gate refuses become `failed` on the way; holds are told in the timeline, once per reason. What
    cannot be claimed because of a row that makes no sense is set aside, so that it never keeps others from it.
    """
    with transaction.atomic():
        passing = _pass_lanes(_lock_lanes(instance_ids), now)
        taken, claims = _take(passing, now)
        _give_back_probes(passing, claims)
        started = _start(claims, now)
        loads = _loads([each for each in taken if each.picked.id in started], now)
        _occupy(loads)
    return _followed([each for each in claims if each.message.id in started], loads, now)


def _lock_lanes(instance_ids: Iterable[int]) -> list[_Lane]:
    return [_Lane(*row) for row in sql.fetch(_LANES, [list(instance_ids)])]


# --- lanes ------------------------------------------------------------------------------------------------

# By instance: the lane, and whether only an urgent message may pass.
Passing = Mapping[int, tuple[_Lane, bool]]


def _pass_lanes(lanes: Sequence[_Lane], now: datetime) -> Passing:
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


def _gate(lane: _Lane, now: datetime) -> tuple[Hold | None, bool]:
    state = lane.state()
    hold = gates.lane_gate(state, now=now)
    return hold, hold is not None and gates.lane_gate(state, now=now, urgent=True) is None


def _takes_probe(lane: _Lane, now: datetime) -> bool:
    return lane.server_id is not None and breaking.take_probe(lane.server_id, now=now)


def _give_back_probes(passing: Passing, claims: Sequence[Claim]) -> None:
    """A probe that sends nothing, because there was nothing or it was refused, would hold its server for nothing."""
    used = {claim.instance_id for claim in claims}
    for instance_id, (lane, _only_urgent) in passing.items():
        if lane.half_open() and lane.server_id is not None and instance_id not in used:
            breaking.give_back_probe(lane.server_id)


def _rest(lane: _Lane, until: datetime) -> None:
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


def _note_hold(lane: _Lane, hold: Hold, now: datetime) -> None:
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


def _take(passing: Passing, now: datetime) -> tuple[list[_Taken], list[Claim]]:
    """The next messages of each lane. Heads that are refused must not cost their queue a turn: the lane picks again."""
    taken: list[_Taken] = []
    claims: list[Claim] = []
    recipients, done = Recipients(now), set[int]()
    for _round in range(REFUSED_AT_ONCE):
        picked = _pick(passing, now)
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


def _pick(passing: Passing, now: datetime) -> list[_Picked]:
    single = {key: lane for key, lane in passing.items() if lane[0].most(now) == 1}
    several = {key: lane for key, lane in passing.items() if key not in single}
    rows = sql.fetch(_PICK, _wanted(single)) if single else []
    if several:
        most = [lane.most(now) for lane, _only_urgent in several.values()]
        rows += sql.fetch(_PICK_MANY, [*_wanted(several), most])
    return [_Picked(*row) for row in rows]


def _wanted(passing: Passing) -> list[list[Any]]:
    lanes = list(passing.values())
    return [list(passing), [only for _, only in lanes], [lane.turn for lane, _ in lanes]]


def _has_gates(passing: Passing, message: _Picked) -> bool:
    return windows.applies_to(passing[message.instance_id][0].provider)


def _stopped(message: _Picked, lane: _Lane, recipients: Recipients, now: datetime) -> bool:
    """Whether a gate of the message or the person keeps it back; what follows from that is written down."""
    refusal = gates.message_gate(deliver_until=message.deliver_until, opted_out=message.opted_out, now=now)
    if not refusal and windows.applies_to(lane.provider):
        refusal = window_gate(open_until=_open_until(message, lane, recipients), now=now)
        if not refusal and (until := _held_until(message, lane, recipients)):
            _set_aside(message, until, now)
            return True
        refusal = refusal or _comment_gate(message, now)
    if refusal:
        status.move(refused(message.id, refusal, now=now))
    return refusal is not None


def _held_until(message: _Picked, lane: _Lane, recipients: Recipients) -> datetime | None:
    paced = windows.paces_people(lane.provider)
    return recipients.held_until(message.instance_id, message.to) if paced else None


def _comment_gate(message: _Picked, now: datetime) -> Refusal | None:
    return comment_gate(
        instance_id=message.instance_id, message_id=message.id, content=_content(message), now=now
    )


def _content(message: _Picked) -> Mapping[str, Any]:
    """Empty for what is none; that it cannot be sent is found out where it is put together."""
    content = json.loads(message.content)
    return content if isinstance(content, dict) else {}


def _open_until(message: _Picked, lane: _Lane, recipients: Recipients) -> datetime | None:
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


def _set_aside(message: _Picked, until: datetime, now: datetime) -> None:
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
    picked: _Picked, lane: _Lane, recipients: Recipients, taken: list[_Taken], claims: list[Claim]
) -> bool:
    """False when the lane should pick again: the message makes no sense. An instance that makes none rests."""
    now = recipients.now
    try:
        message = outbound(
            id=picked.id, to=picked.to, recipient_id=picked.recipient_id, content=json.loads(picked.content)
        )
    except Exception:
        log.exception("claim.message_unusable", message_id=picked.id)
        status.move(refused(picked.id, Refusal("content", FailureCode.INVALID_CONTENT), now=now))
        return False
    try:
        each = _Taken.of(picked, lane, now)
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


def _with_person(claim: Claim, picked: _Picked, lane: _Lane, recipients: Recipients) -> Claim:
    """The claim with what is known of the person; counted against the rate to that person."""
    if windows.paces_people(lane.provider):
        recipients.use_up(picked.instance_id, picked.to)
    state = recipients.state(picked.instance_id, picked.to)
    return replace(
        claim,
        message=replace(claim.message, last_received_id=state.received_id),
        open_until=_open_until(picked, lane, recipients),
    )


def _claim(taken: _Taken, message: OutboundMessage, account: Account, now: datetime) -> Claim:
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


@dataclass(frozen=True, slots=True)
class _Load:
    """What a claim puts on one lane: `count` messages, of which `last` is the last, and when the next may go."""

    last: _Taken
    count: int
    next_send_at: datetime
    next_urgent_at: datetime

    @classmethod
    def of(cls, taken: Sequence[_Taken], now: datetime) -> _Load:
        last, count = taken[-1], len(taken)
        rate = last.lane.messages_per_second
        if not rate:
            return cls(last, count, last.next_send_at, last.next_urgent_at)
        next_at = rates.after(last.lane.next_send_at, count, per_second=rate, now=now)
        return cls(last, count, next_at, next_at)

    def row(self) -> tuple[Any, ...]:
        """In the order of _OCCUPY."""
        picked = self.last.picked
        ends = picked.start + self.count / picked.weight
        times = (self.next_send_at, self.next_urgent_at)
        project = (picked.project_id, ends, self.count)
        return (picked.instance_id, *times, picked.start, self.last.sent_on, *project)

    def full(self) -> bool:
        lane = self.last.lane
        return lane.in_flight + self.count >= lane.concurrency


def _loads(taken: Sequence[_Taken], now: datetime) -> list[_Load]:
    by_lane: dict[int, list[_Taken]] = {}
    for each in taken:
        by_lane.setdefault(each.picked.instance_id, []).append(each)
    return [_Load.of(each, now) for each in by_lane.values()]


def _occupy(loads: Sequence[_Load]) -> None:
    """Puts the messages on their lanes, and moves each project's turn and each lane's clock on."""
    if loads:
        sql.execute(_OCCUPY, sql.transposed([load.row() for load in loads]))


def _followed(claims: Sequence[Claim], loads: Sequence[_Load], now: datetime) -> list[Claim]:
    """The claims; the last one of each lane says when there may be more."""
    last = {load.last.picked.id: load for load in loads if not load.full()}
    return [
        _with_next(claim, last[claim.message.id], now) if claim.message.id in last else claim
        for claim in claims
    ]


def _with_next(claim: Claim, load: _Load, now: datetime) -> Claim:
    wait = load.next_send_at - now
    if wait <= timedelta():
        return replace(claim, more=True)
    return replace(claim, again_in=wait.total_seconds()) if wait <= SOON else claim
