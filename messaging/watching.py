"""The watch: once a minute, what nobody is looking at while it goes wrong. It alerts, and says when it is over.

Each part asks bounded questions in short statements and keeps its place in the database. Safe to run twice at once:
an alert is raised once, whoever raises it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import connection

from messaging.models import MessageEvent
from pilot.alerts import end_quiet, open_subjects, raise_alert, recover
from pilot.alerts.delivering import wake_due
from pilot.alerts.kinds import KindName
from pilot.leases import lease
from pilot.models import StreamPlace
from pilot.outbox import numbered
from pilot.vigilance import watch_processes

log = structlog.get_logger(__name__)

LEASE = timedelta(minutes=2)
INSTANCES_AT_ONCE = 200
SMALLEST_SAMPLE = 1000
EVENTS_AT_ONCE = 20_000
# A queue has recovered when it is clearly below its threshold, so that one that hovers there is told of once.
CALM = 0.8


def watch(*, now: datetime) -> dict[str, int]:
    """One round of PARTS, unless another process is at it. Returns what each did, in its own count."""
    with lease("messaging.watch", lasts=LEASE) as ours:
        return {name: _try(name, part, now) for name, part in PARTS.items()} if ours else {}


def _try(name: str, part: Callable[[datetime], int], now: datetime) -> int:
    """A part that fails is logged, and keeps none of the others from looking."""
    try:
        return part(now)
    except Exception:
        log.exception("watch.failed", part=name)
        return 0


# --- queues -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Queue:
    """What is ready to be sent on an instance, in the order of _QUEUES; counted up to the sample's size."""

    instance_id: int
    name: str
    tenant_id: int
    waiting: int
    oldest: datetime | None


# Of an instance's ready messages any SAMPLE: both figures are exact for a queue that is not longer. Unordered, because
# an order would make the planner read and sort a queue as a whole.
_QUEUES = """
SELECT i.id, i.name, i.tenant_id, head.waiting, head.oldest
FROM (SELECT id, name, tenant_id FROM instances_instance WHERE status <> 'removed' AND id > %s ORDER BY id LIMIT %s) i
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting, min(since) AS oldest FROM (
        SELECT coalesce(m.scheduled_at, m.created_at) AS since FROM messaging_message m
        WHERE m.instance_id = i.id AND m.status = 'queued' AND m.next_attempt_at IS NULL LIMIT %s) sample
) head
ORDER BY i.id
"""


def watch_queues(now: datetime) -> int:
    """Alerts of queues that are too long or too old. Returns how many are."""
    most, oldest = settings.ALERT_QUEUE_LENGTH, settings.ALERT_OLDEST
    sample = max(most, SMALLEST_SAMPLE) + 1
    length = _Gauge("queue_too_long", most, {"limit": most})
    age = _Gauge("oldest_too_old", oldest.total_seconds(), {"minutes": int(oldest.total_seconds() // 60)})
    for queue in _queues(sample):
        length.read(queue, queue.waiting, now)
        # A part of a queue proves that something in it is old, and never that nothing is.
        age.read(queue, _age(queue, now), now, whole=queue.waiting < sample)
    for gauge in (length, age):
        gauge.end_unread(now)
    return length.bad + age.bad


def _age(queue: Queue, now: datetime) -> float:
    return (now - queue.oldest).total_seconds() if queue.oldest else 0.0


def _queues(sample: int) -> Iterator[Queue]:
    after = 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(_QUEUES, [after, INSTANCES_AT_ONCE, sample])
            rows = cursor.fetchall()
        yield from (Queue(*row) for row in rows)
        if len(rows) < INSTANCES_AT_ONCE:
            return
        after = rows[-1][0]


class _Gauge:
    """Compares readings of all instances with a limit, which is off at 0; knows which alerts are open."""

    def __init__(self, kind: KindName, limit: float, detail: Mapping[str, int]) -> None:
        self._kind = kind
        self._limit = limit
        self._detail = detail
        self._open = open_subjects(kind)
        self.bad = 0

    def read(self, queue: Queue, value: float, now: datetime, *, whole: bool = True) -> None:
        """`whole` says that a small value is one of the whole queue, and so the end of an alert."""
        subject = str(queue.instance_id)
        known = subject in self._open
        if self._limit:
            self._open.discard(subject)
        if 0 < self._limit < value:
            self.bad += 1
            if not known:
                detail = {"name": queue.name, **self._detail}
                raise_alert(self._kind, subject, tenant_id=queue.tenant_id, detail=detail, now=now)
        elif self._limit and known and whole and value <= self._limit * CALM:
            recover(self._kind, subject, now=now)

    def end_unread(self, now: datetime) -> None:
        """Ends, without a word, those of instances that were removed, and all of them when the limit is off."""
        for subject in self._open:
            recover(self._kind, subject, now=now, silently=True)


# --- messages that were given up --------------------------------------------------------------------------

PLACE = "messaging.watch.exhausted"
_EXHAUSTED = """
SELECT m.instance_id, i.name, m.tenant_id, count(*)
FROM messaging_messageevent e
JOIN messaging_message m ON m.id = e.message_id
JOIN instances_instance i ON i.id = m.instance_id
WHERE e.position > %s AND e.position <= %s AND e.kind = 'failed' AND e.detail ->> 'code' = 'attempts_exhausted'
GROUP BY 1, 2, 3 ORDER BY 1
"""


def watch_exhausted(now: datetime) -> int:
    """Alerts of messages that failed after their last attempt since the last look, once for each instance (ME-08).

    Returns how many messages. What was before the first look of all is not told.
    """
    newest = numbered(MessageEvent)
    place, _created = StreamPlace.objects.get_or_create(pk=PLACE, defaults={"position": newest})
    found, after = 0, place.position
    while after < newest:
        upto = min(after + EVENTS_AT_ONCE, newest)
        found += _tell_exhausted(after, upto, now)
        StreamPlace.objects.filter(pk=PLACE, position=after).update(position=upto)
        after = upto
    return found


def _tell_exhausted(after: int, upto: int, now: datetime) -> int:
    with connection.cursor() as cursor:
        cursor.execute(_EXHAUSTED, [after, upto])
        rows = cursor.fetchall()
    for instance_id, name, tenant_id, count in rows:
        detail = {"name": name, "count": count}
        raise_alert("attempts_exhausted", instance_id, tenant_id=tenant_id, detail=detail, now=now)
    return sum(row[3] for row in rows)


# --- all together -----------------------------------------------------------------------------------------


def _wake(now: datetime) -> int:
    return len(wake_due(now=now))


PARTS: Mapping[str, Callable[[datetime], int]] = {
    "queues": watch_queues,
    "exhausted": watch_exhausted,
    "processes": watch_processes,
    "quiet": end_quiet,
    "woken": _wake,
}
