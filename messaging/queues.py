"""How every instance's queue is: what waits, since when, what went out lately, and when it will be empty.

A handful of statements for any number of instances; none reads more of the messages than those that wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.db.models import QuerySet

from instances.models import Instance, InstanceStatus, Lane
from messaging.forecasting import empty_at
from messaging.models import Purge
from pilot.sql import fetch

HOURS = 24
SHOWN = (
    "name",
    "status",
    "status_reason",
    "status_changed_at",
    "paused",
    "number",
    "pace_least_seconds",
    "pace_most_seconds",
    "urgent_gap_seconds",
    "concurrency",
    "daily_cap",
    "warm_up_from",
    "lane",
    "server__breaker",
    "tenant__name",
    "tenant__time_zone",
)


class Waiting(NamedTuple):
    """What waits on an instance: `ready` may go now, `delayed` is scheduled or is tried again later."""

    ready: int = 0
    urgent: int = 0
    delayed: int = 0
    oldest_at: datetime | None = None  # since when the oldest of what is ready has been wanted
    first_due: datetime | None = None  # of what is delayed
    last_due: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """One instance's queue. Times are None where there is none, or where nobody can know."""

    instance: Instance
    waiting: Waiting
    in_flight: int
    sent: Sequence[int]  # by hour, the current one last
    failed: int  # in the same hours
    breaker_until: datetime | None
    next_send_at: datetime | None
    empty_at: datetime | None
    purge: Purge | None
    now: datetime

    @property
    def length(self) -> int:
        return self.waiting.ready + self.waiting.delayed

    @property
    def oldest_seconds(self) -> int | None:
        """How long the oldest message that may go has waited."""
        oldest = self.waiting.oldest_at
        return int((self.now - oldest).total_seconds()) if oldest else None

    @property
    def sent_per_hour(self) -> int:
        """Over the last sixty minutes, taking the hour before for even."""
        share = (self.now - _hour(self.now)) / timedelta(hours=1)
        return round(self.sent[-1] + self.sent[-2] * (1 - share))

    @property
    def too_long(self) -> bool:
        """As in messaging/watching.py, which alerts of it."""
        return 0 < settings.ALERT_QUEUE_LENGTH < self.waiting.ready

    @property
    def too_old(self) -> bool:
        return 0 < settings.ALERT_OLDEST.total_seconds() < (self.oldest_seconds or 0)

    @property
    def troubled(self) -> bool:
        """Whether somebody should look: it is over a threshold, or messages wait on an instance that does not send."""
        stuck = self.length > 0 and (self.instance.status != InstanceStatus.OPEN or self.instance.paused)
        return self.too_long or self.too_old or stuck or self.breaker_until is not None


def queues(instances: QuerySet[Instance], *, now: datetime) -> list[Queue]:
    """The queue of each of the instances, in their order."""
    rows = list(instances.select_related("tenant", "lane", "server__breaker").only(*SHOWN))
    for row in rows:
        if not hasattr(row, "lane"):  # the full reconciler makes it one
            Lane(instance=row)
    ids = [row.pk for row in rows]
    waits, hours, purges = waiting(ids), _hours(ids, now), _purges(ids)
    return [_queue(row, waits[row.pk], hours.get(row.pk, Hours()), purges.get(row.pk), now) for row in rows]


def present(instances: QuerySet[Instance]) -> QuerySet[Instance]:
    """Those that were not removed."""
    return instances.exclude(status=InstanceStatus.REMOVED)


# Both predicates as literals, each served by its partial index.
_READY = """
SELECT instance_id, count(*), count(*) FILTER (WHERE urgent), min(coalesce(scheduled_at, created_at))
FROM messaging_message
WHERE status = 'queued' AND next_attempt_at IS NULL {only} GROUP BY instance_id
"""
_DELAYED = """
SELECT instance_id, count(*), min(next_attempt_at), max(next_attempt_at) FROM messaging_message
WHERE status = 'queued' AND next_attempt_at IS NOT NULL {only} GROUP BY instance_id
"""


def waiting(instance_ids: Collection[int] | None = None) -> Mapping[int, Waiting]:
    """What waits on each of the instances, or on any; a nothing for those on which none does."""
    only = "" if instance_ids is None else "AND instance_id = ANY(%s)"
    values = [] if instance_ids is None else [list(instance_ids)]
    found: dict[int, Waiting] = defaultdict(Waiting)
    for key, ready, urgent, oldest in fetch(_READY.format(only=only), values):
        found[key] = Waiting(ready, urgent, 0, oldest)
    for key, delayed, first, last in fetch(_DELAYED.format(only=only), values):
        found[key] = found[key]._replace(delayed=delayed, first_due=first, last_due=last)
    return found


class Hours(NamedTuple):
    """What an instance did in the last HOURS hours, the current one last."""

    sent: Sequence[int] = (0,) * HOURS
    failed: int = 0


_HOURS = """
SELECT instance_id, array_agg(round(extract(epoch FROM hour - %s) / 3600)::int), array_agg(sent), sum(failed)
FROM instances_instancehour WHERE instance_id = ANY(%s) AND hour >= %s GROUP BY instance_id
"""


def _hours(ids: Sequence[int], now: datetime) -> Mapping[int, Hours]:
    first = _hour(now) - timedelta(hours=HOURS - 1)
    found = {}
    for key, places, counts, failed in fetch(_HOURS, [first, list(ids), first]):
        by_place = dict(zip(places, counts, strict=True))
        found[key] = Hours([by_place.get(place, 0) for place in range(HOURS)], failed)
    return found


def _purges(ids: Sequence[int]) -> Mapping[int, Purge]:
    return {purge.instance_id: purge for purge in Purge.objects.filter(instance__in=ids, finished_at=None)}


def _queue(
    instance: Instance,
    waits: Waiting,
    hours: Hours,
    purge: Purge | None,
    now: datetime,
) -> Queue:
    next_send_at = _next_send_at(instance, waits, now)
    return Queue(
        instance=instance,
        waiting=waits,
        in_flight=instance.lane.in_flight,
        sent=hours.sent,
        failed=hours.failed,
        breaker_until=_breaker_until(instance, now),
        next_send_at=next_send_at,
        empty_at=_empty_at(instance, waits, next_send_at, now),
        purge=purge,
        now=now,
    )


def _next_send_at(instance: Instance, waits: Waiting, now: datetime) -> datetime | None:
    """The earliest moment at which a message may start; None when none waits, or while the instance does not send."""
    if instance.status != InstanceStatus.OPEN or instance.paused or not (waits.ready or waits.delayed):
        return None
    lane = instance.lane
    free_at = min(lane.next_send_at, lane.next_urgent_at) if waits.urgent else lane.next_send_at
    held_until = lane.held_until if lane.held_by else None
    due = None if waits.ready else waits.first_due
    return _latest(now, free_at, held_until, due, _breaker_until(instance, now))


def _empty_at(instance: Instance, waits: Waiting, start: datetime | None, now: datetime) -> datetime | None:
    if start is None:
        return None
    total = waits.ready + waits.delayed
    expected = empty_at(instance, instance.lane, waiting=total, urgent=waits.urgent, start=start, now=now)
    return expected and _latest(expected, waits.last_due)


def _breaker_until(instance: Instance, now: datetime) -> datetime | None:
    """Until when its server's circuit breaker is open; one that is half-open counts as closed."""
    breaker = getattr(instance.server, "breaker", None)
    return breaker.open_until if breaker and breaker.open_until and breaker.open_until > now else None


def _latest(first: datetime, *others: datetime | None) -> datetime:
    return max([first, *filter(None, others)])


def _hour(now: datetime) -> datetime:
    return now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


# --- which first ------------------------------------------------------------------------------------------

FAR = datetime.max.replace(tzinfo=UTC)

# What a column sorts by; ties by name.
SORTS = {
    "name": lambda queue: queue.instance.name,
    "state": lambda queue: (queue.instance.status != "open", queue.instance.paused, queue.instance.status),
    "queued": lambda queue: queue.waiting.ready,
    "delayed": lambda queue: queue.waiting.delayed,
    "in_flight": lambda queue: queue.in_flight,
    "failed": lambda queue: queue.failed,
    "oldest": lambda queue: queue.oldest_seconds or -1,
    "sent": lambda queue: queue.sent_per_hour,
    "next": lambda queue: queue.next_send_at or FAR,
    "empty": lambda queue: queue.empty_at or (FAR if queue.length else queue.now),
}


def ranked(rows: Iterable[Queue], sort: str) -> list[Queue]:
    """Sorted by a name of SORTS, descending with a leading "-". Raises KeyError for others."""
    named = sorted(rows, key=SORTS["name"])
    return sorted(named, key=SORTS[sort.removeprefix("-")], reverse=sort.startswith("-"))
