"""What claimed messages put on their lanes: the slots they take, and when the next may go."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from accounts.models import zone_of
from messaging import rates
from messaging.picking import LaneRow, Picked
from pilot import sql

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
class Taken:
    """A message that passed, and what its lane looks like after it."""

    picked: Picked
    lane: LaneRow
    next_send_at: datetime
    next_urgent_at: datetime
    sent_on: date

    @classmethod
    def of(cls, picked: Picked, lane: LaneRow, now: datetime) -> Taken:
        gap = now + timedelta(seconds=lane.urgent_gap_seconds)
        pace = now + timedelta(seconds=random.uniform(lane.pace_least_seconds, lane.pace_most_seconds))
        # An urgent message goes between the others: it may delay the next one by its gap, never bring it forward.
        after_urgent = max(lane.next_send_at, gap)
        next_send_at = now if picked.late else after_urgent if picked.urgent else pace
        if lane.messages_per_second:
            next_send_at = gap = lane.next_send_at  # Load moves it on by the rate
        today = now.astimezone(zone_of(lane.time_zone)).date()
        return cls(picked, lane, next_send_at, now if picked.late else gap, today)


@dataclass(frozen=True, slots=True)
class Load:
    """What a claim puts on one lane: `count` messages, of which `last` is the last, and when the next may go."""

    last: Taken
    count: int
    next_send_at: datetime
    next_urgent_at: datetime

    @classmethod
    def of(cls, taken: Sequence[Taken], now: datetime) -> Load:
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


def loads_of(taken: Sequence[Taken], now: datetime) -> list[Load]:
    """One load for each lane."""
    by_lane: dict[int, list[Taken]] = {}
    for each in taken:
        by_lane.setdefault(each.picked.instance_id, []).append(each)
    return [Load.of(each, now) for each in by_lane.values()]


def occupy(loads: Sequence[Load]) -> None:
    """Puts the messages on their lanes, and moves each project's turn and each lane's clock on."""
    if loads:
        sql.execute(_OCCUPY, sql.transposed([load.row() for load in loads]))
