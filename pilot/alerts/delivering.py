"""Delivers notices: takes a row, hands it to its channel outside of any transaction, writes down what came of it.

A channel is served by one process at a time, so that one that hangs costs one thread and holds up no other. A row is
taken by a lease of its own: whoever dies with it leaves it to be sent again, and nobody else sends it meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import structlog
from django.db import connection
from django.utils import timezone

from pilot.alerts import channels
from pilot.alerts.channels import NotDelivered
from pilot.alerts.wording import notice_of
from pilot.celery import wake_alerts
from pilot.leases import lease
from pilot.models import AlertDelivery

log = structlog.get_logger(__name__)

RUN_SECONDS = 60.0
# Of a loop of the consumers, whose heartbeat comes after each step: with a channel that hangs, still in time for it.
OVERDUE_SECONDS = 5.0
LEASE = timedelta(minutes=2)  # of a row: longer than its channel may take
CHANNEL_LEASE = timedelta(seconds=RUN_SECONDS) + LEASE
FIRST_WAIT, LONGEST_WAIT = timedelta(minutes=1), timedelta(hours=1)
OVERDUE = timedelta(minutes=2)
TOGETHER = 100  # alerts in one notice, at most
ATTEMPTS = 12  # within some seven hours

# A recovery waits for the notice of what it ends.
_DUE = """
FROM pilot_alertdelivery d JOIN pilot_alert a ON a.id = d.alert_id
WHERE d.state = 'waiting' AND d.next_attempt_at <= %(now)s AND NOT EXISTS (
    SELECT FROM pilot_alertdelivery earlier
    WHERE d.notice = 'recovered' AND earlier.notice = 'raised' AND earlier.state = 'waiting'
      AND (earlier.alert_id, earlier.channel, earlier.recipient) = (d.alert_id, d.channel, d.recipient))
"""
_DUE_CHANNELS = f"SELECT DISTINCT d.channel {_DUE} ORDER BY 1"
# What is due to one recipient about one kind of trouble goes together: fifty instances of a server that died are one
# notice. `d` is looked at again once its lock is held.
_TAKE = f"""
WITH due AS (SELECT d.id, d.recipient, d.notice, a.kind, d.next_attempt_at {_DUE} AND d.channel = %(channel)s),
     head AS (SELECT recipient, notice, kind FROM due ORDER BY next_attempt_at, id LIMIT 1)
UPDATE pilot_alertdelivery SET attempts = attempts + 1, token = %(token)s, next_attempt_at = %(until)s WHERE id IN (
    SELECT d.id FROM due JOIN head USING (recipient, notice, kind) JOIN pilot_alertdelivery d USING (id)
    WHERE d.state = 'waiting' AND d.next_attempt_at <= %(now)s
    ORDER BY d.id LIMIT %(most)s FOR UPDATE OF d SKIP LOCKED)
RETURNING id
"""


def deliver(channel: str, *, seconds: float = RUN_SECONDS) -> int:
    """Sends what is due in a channel, beginning no more after `seconds`. Returns how many notices; none when another
    does."""
    count = 0
    until = time.monotonic() + seconds
    # Asked again after the lease: whoever was woken while it was ours has gone away.
    while time.monotonic() < until and channel in due_channels(now=timezone.now()):
        with lease(f"alerts.{channel}", lasts=CHANNEL_LEASE) as ours:
            if not ours:
                break
            count += _drain(channel, until)
    return count


def due_channels(*, now: datetime) -> list[str]:
    """The channels in which something is due."""
    with connection.cursor() as cursor:
        cursor.execute(_DUE_CHANNELS, {"now": now})
        return [row[0] for row in cursor.fetchall()]


def wake_due(*, now: datetime) -> Sequence[str]:
    """Wakes every channel in which something is due. Returns their names."""
    due = due_channels(now=now)
    wake_alerts(due)
    return due


def deliver_overdue(*, now: datetime) -> int:
    """Sends what nobody has taken for a while, each channel in a thread of its own. Returns how many notices.

    For a process that is no Celery worker: trouble with Redis, or with all workers, must be told as well.
    """
    late = due_channels(now=now - OVERDUE)
    if not late:
        return 0
    with ThreadPoolExecutor(len(late)) as pool:
        return sum(pool.map(_deliver_apart, late))


def _deliver_apart(channel: str) -> int:
    try:
        return deliver(channel, seconds=OVERDUE_SECONDS)
    finally:
        connection.close()  # this thread's own


def take(channel: str, *, now: datetime) -> list[AlertDelivery]:
    """What is due to the next recipient, ours alone until its lease ends. Empty when nothing is due."""
    token = uuid4()
    values: dict[str, Any] = {
        "channel": channel,
        "now": now,
        "token": token,
        "until": now + LEASE,
        "most": TOGETHER,
    }
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, values)
        keys = [row[0] for row in cursor.fetchall()]
    taken = AlertDelivery.objects.filter(pk__in=keys, token=token)
    return list(taken.select_related("alert__tenant").order_by("pk"))


def send(deliveries: Sequence[AlertDelivery]) -> None:
    """Hands what was taken to its channel, as one notice, and writes down what came of it."""
    channel = deliveries[0].channel
    try:
        channels.channel(channel).send(notice_of(deliveries))
    except NotDelivered as error:
        _note_failure(deliveries, error)
    except Exception as error:
        log.exception("alert.channel_broken", channel=channel)
        _note_failure(deliveries, NotDelivered(type(error).__name__))
    else:
        for delivery in deliveries:
            _settle(delivery, state="delivered", next_attempt_at=None, delivered_at=timezone.now(), error="")


def next_attempt(*, attempts: int, now: datetime, retry_after: float | None = None) -> datetime | None:
    """When to try again after so many attempts: a minute, then twice as long each time. None: not any more."""
    if attempts >= ATTEMPTS:
        return None
    wait = min(FIRST_WAIT * 2 ** (attempts - 1), LONGEST_WAIT)
    return now + max(wait, timedelta(seconds=retry_after or 0))


def _drain(channel: str, until: float) -> int:
    count = 0
    while time.monotonic() < until and (deliveries := take(channel, now=timezone.now())):
        send(deliveries)
        count += 1
    return count


def _note_failure(deliveries: Sequence[AlertDelivery], error: NotDelivered) -> None:
    now = timezone.now()
    log.warning("alert.not_delivered", channel=deliveries[0].channel, reason=str(error))
    for delivery in deliveries:
        again = next_attempt(attempts=delivery.attempts, now=now, retry_after=error.retry_after)
        at = None if error.final else again
        state = "waiting" if at else "failed"
        _settle(delivery, state=state, next_attempt_at=at, error=str(error)[:300])


def _settle(delivery: AlertDelivery, **values: object) -> None:
    """Unless its lease ended and somebody else is at it: then theirs is the word that counts."""
    AlertDelivery.objects.filter(pk=delivery.pk, token=delivery.token).update(token=None, **values)
