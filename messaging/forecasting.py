"""When a waiting message will go out: its position in the instance's queue, and the time that follows from the pace.

An estimate, made from the same rules by which messages are claimed (messaging/claiming.py). Accepting asks a snapshot
of the queue that is at most a second old, because counting a long queue for every request would cost more than
accepting it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import NamedTuple

from django.conf import settings
from django.db import connection

from accounts.models import zone_of
from instances import breaking
from instances.models import Instance, InstanceStatus, Lane
from messaging.gates import allowance
from messaging.models import Message

# What a send takes where no pace says more: one round trip to the provider.
SEND_SECONDS = 0.25
COUNTED_AT_MOST = 10_000
SNAPSHOT_SECONDS = 1.0
# A snapshot of a long queue is kept for as long as it keeps its share of the time small.
SNAPSHOT_SHARE = 20


@dataclass(frozen=True, slots=True)
class Forecast:
    """`position` 1 is next. `expected_at` is None while nobody can know: the instance is not open."""

    position: int
    expected_at: datetime | None

    def late(self, deliver_until: datetime) -> bool:
        """Whether the message would miss its deadline, or nobody can promise that it would not."""
        return self.expected_at is None or self.expected_at >= deliver_until


class Queue(NamedTuple):
    """What messages of an instance have in common that go out in the order of their deadlines."""

    project_id: int
    weight: int
    urgent: bool
    category: str


@dataclass(frozen=True, slots=True)
class Group:
    """The ready messages of one project on an instance that have the same urgency and category."""

    project_id: int
    weight: int
    urgent: bool
    category: str
    count: int


def for_new(
    message: Message,
    *,
    instance: Instance,
    lane: Lane,
    added: Mapping[Queue, int] | None = None,
    now: datetime,
) -> Forecast:
    """The forecast for a message that is being accepted; it is not in the queue yet.

    `added` counts the messages of the instance that are accepted before it and are not in the queue yet either. Of a
    scheduled one nobody knows what will be before it: it is expected at its time.
    """
    groups: list[Group] = []
    if not message.scheduled_at:
        own_batch = [Group(*queue, count) for queue, count in (added or {}).items()]
        groups = [*snapshot(instance.pk), *own_batch]
    own = [
        group for group in groups if group.project_id == message.project_id and group.urgent == message.urgent
    ]
    deadlines = settings.DEADLINES
    ahead = sum(group.count for group in own if deadlines[group.category] <= deadlines[message.category])
    return estimate(message, groups, ahead=ahead, instance=instance, lane=lane, now=now)


def queue_of(message: Message) -> Queue:
    """The queue that a message stands in: that of its project, urgency and category."""
    project = message.project
    return Queue(project.pk, project.weight, message.urgent, message.category)


def for_waiting(message: Message, *, instance: Instance, lane: Lane, now: datetime) -> Forecast:
    """The forecast for a message that is queued."""
    groups = snapshot(instance.pk)
    return estimate(message, groups, ahead=_ahead(message), instance=instance, lane=lane, now=now)


def estimate(
    message: Message, groups: Sequence[Group], *, ahead: int, instance: Instance, lane: Lane, now: datetime
) -> Forecast:
    """Pure. `ahead` counts the messages of the same project and urgency that go before this one."""
    urgent = 0 if message.urgent else sum(group.count for group in groups if group.urgent)
    rivals = sum(_turns(group, message, groups, ahead) for group in _rivals(message, groups))
    position = 1 + urgent + ahead + rivals
    return Forecast(position, _expected_at(message, position, urgent, instance, lane, now))


def snapshot(instance_id: int) -> Sequence[Group]:
    """What is ready on an instance, as it was at most a second ago (longer for a very long queue)."""
    until, groups = _snapshots.get(instance_id, (0.0, ()))
    started = time.monotonic()
    if started < until:
        return groups
    groups = _read(instance_id)
    took = time.monotonic() - started
    if len(_snapshots) > SNAPSHOTS_KEPT:
        _snapshots.clear()
    _snapshots[instance_id] = (time.monotonic() + max(SNAPSHOT_SECONDS, took * SNAPSHOT_SHARE), groups)
    return groups


def forget() -> None:
    """Empties the memory of snapshots, for tests."""
    _snapshots.clear()


# --- the queue --------------------------------------------------------------------------------------------

SNAPSHOTS_KEPT = 10_000
_snapshots: dict[int, tuple[float, Sequence[Group]]] = {}

_GROUPS = """
SELECT m.project_id, p.weight, m.urgent, m.category, count(*) FROM messaging_message m
JOIN accounts_project p ON p.id = m.project_id
WHERE m.instance_id = %s AND m.status = 'queued' AND m.next_attempt_at IS NULL
GROUP BY m.project_id, p.weight, m.urgent, m.category
"""
_AHEAD = """
SELECT count(*) FROM (
    SELECT FROM messaging_message
    WHERE instance_id = %s AND urgent = %s AND project_id = %s AND status = 'queued' AND next_attempt_at IS NULL
      AND (deliver_until, id) < (%s, %s)
    LIMIT %s) AS ahead
"""


def _read(instance_id: int) -> Sequence[Group]:
    with connection.cursor() as cursor:
        cursor.execute(_GROUPS, [instance_id])
        return [Group(*row) for row in cursor.fetchall()]


def _ahead(message: Message) -> int:
    queue = (message.instance_id, message.urgent, message.project_id)
    with connection.cursor() as cursor:
        cursor.execute(_AHEAD, [*queue, message.deliver_until, message.pk, COUNTED_AT_MOST])
        return int(cursor.fetchone()[0])


def _rivals(message: Message, groups: Sequence[Group]) -> list[Group]:
    """The other projects with messages as urgent as this one, one group for each."""
    counts: dict[int, Group] = {}
    for group in groups:
        if group.project_id == message.project_id or group.urgent != message.urgent:
            continue
        seen = counts.get(group.project_id)
        total = group.count + (seen.count if seen else 0)
        counts[group.project_id] = Group(group.project_id, group.weight, group.urgent, "", total)
    return list(counts.values())


def _turns(rival: Group, message: Message, groups: Sequence[Group], ahead: int) -> int:
    """How many turns a rival gets before it is this message's turn, in proportion to the weights."""
    weight = next((group.weight for group in groups if group.project_id == message.project_id), 1)
    return min(rival.count, ceil((ahead + 1) * rival.weight / weight))


# --- the time ---------------------------------------------------------------------------------------------


def _expected_at(
    message: Message, position: int, urgent: int, instance: Instance, lane: Lane, now: datetime
) -> datetime | None:
    if not _sends(instance):
        return None
    free_at = min(lane.next_urgent_at, lane.next_send_at) if message.urgent else lane.next_send_at
    start = max(now, free_at, message.next_attempt_at or now, breaking.open_until(instance.server_id) or now)
    gap = _gap_seconds(instance, urgent=message.urgent)
    wait = urgent * max(instance.urgent_gap_seconds, SEND_SECONDS) + (position - 1 - urgent) * gap
    return _after_midnight(start + timedelta(seconds=wait), position, instance, lane, now)


def empty_at(
    instance: Instance, lane: Lane, *, waiting: int, urgent: int, start: datetime, now: datetime
) -> datetime | None:
    """When the last of `waiting` messages, `urgent` of them urgent, has gone, if the first goes at `start`.

    None while nobody can know, because the instance is not sending. Pure but for the tenant's time zone.
    """
    if not _sends(instance):
        return None
    # Urgent ones go first, and the last message waits for no gap.
    urgent_gap, gap = _gap_seconds(instance, urgent=True), _gap_seconds(instance, urgent=False)
    wait = urgent * urgent_gap + (waiting - urgent) * gap - (gap if waiting > urgent else urgent_gap)
    return _after_midnight(max(start, now) + timedelta(seconds=wait), waiting, instance, lane, now)


def _sends(instance: Instance) -> bool:
    return instance.status == InstanceStatus.OPEN and not instance.paused


def _gap_seconds(instance: Instance, *, urgent: bool) -> float:
    gap = instance.urgent_gap_seconds if urgent else pace_seconds(instance)
    return max(gap, SEND_SECONDS / instance.concurrency)


def pace_seconds(instance: Instance) -> float:
    """The mean time between two sends."""
    return (instance.pace_least_seconds + instance.pace_most_seconds) / 2


def _after_midnight(
    expected: datetime, position: int, instance: Instance, lane: Lane, now: datetime
) -> datetime | None:
    """Later by whole days when the day's allowance does not reach as far as the position; None when it is nothing."""
    zone = zone_of(instance.tenant)
    today = now.astimezone(zone).date()
    most = allowance(daily_cap=instance.daily_cap, warm_up_from=instance.warm_up_from, today=today)
    if most is None:
        return expected
    if most == 0:
        return None
    used = lane.sent_count if lane.sent_on == today else 0
    days = max(ceil((used + position) / most) - 1, 0)
    if not days:
        return expected
    midnight = datetime.combine(today + timedelta(days=days), datetime.min.time(), tzinfo=zone)
    return max(expected, midnight)
