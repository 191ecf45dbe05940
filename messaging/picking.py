"""Which messages are next: the lanes that this transaction may claim from, and the heads of their queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from accounts.models import zone_of
from messaging import gates, rates
from messaging.gates import LaneState
from pilot import sql

TAKEN_AT_ONCE = 100  # from one lane

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


@dataclass(frozen=True, slots=True)
class LaneRow:
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
class Picked:
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


# By instance: the lane, and whether only an urgent message may pass.
Passing = Mapping[int, tuple[LaneRow, bool]]


def lock_lanes(instance_ids: Iterable[int]) -> list[LaneRow]:
    """Locks the lanes until the transaction ends; one that somebody else is claiming from is left to them."""
    return [LaneRow(*row) for row in sql.fetch(_LANES, [list(instance_ids)])]


def pick(passing: Passing, now: datetime) -> list[Picked]:
    """The next messages of each lane, locked."""
    single = {key: lane for key, lane in passing.items() if lane[0].most(now) == 1}
    several = {key: lane for key, lane in passing.items() if key not in single}
    rows = sql.fetch(_PICK, _wanted(single)) if single else []
    if several:
        most = [lane.most(now) for lane, _only_urgent in several.values()]
        rows += sql.fetch(_PICK_MANY, [*_wanted(several), most])
    return [Picked(*row) for row in rows]


def _wanted(passing: Passing) -> list[list[Any]]:
    lanes = list(passing.values())
    return [list(passing), [only for _, only in lanes], [lane.turn for lane, _ in lanes]]
