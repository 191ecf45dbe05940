"""Delivers notices: takes a row, hands it to its channel outside of any transaction, writes down what came of it.

A channel is served by one process at a time, so that one that hangs costs one thread and holds up no other. A row is
taken by a lease of its own: whoever dies with it leaves it to be sent again, and nobody else sends it meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import uuid4

import structlog
from django.db.models import Q
from django.utils import timezone

from pilot import sql
from pilot.alerts import channels
from pilot.alerts.channels import NotDelivered
from pilot.alerts.wording import notice_of
from pilot.celery import wake_alerts
from pilot.leases import lease
from pilot.models import AlertDelivery

log = structlog.get_logger(__name__)

RUN_SECONDS = 60.0
LEASE = timedelta(minutes=2)  # of a row: longer than its channel may take
CHANNEL_LEASE = timedelta(seconds=RUN_SECONDS) + LEASE
FIRST_WAIT, LONGEST_WAIT = timedelta(minutes=1), timedelta(hours=1)
ATTEMPTS = 12  # within some seven hours

# A recovery waits for the notice of what it ends.
_TAKE = """
UPDATE pilot_alertdelivery SET attempts = attempts + 1, token = %s, next_attempt_at = %s WHERE id = (
    SELECT d.id FROM pilot_alertdelivery d
    WHERE d.state = 'waiting' AND d.channel = %s AND d.next_attempt_at <= %s AND NOT EXISTS (
        SELECT FROM pilot_alertdelivery earlier
        WHERE d.notice = 'recovered' AND earlier.notice = 'raised' AND earlier.state = 'waiting'
          AND (earlier.alert_id, earlier.channel, earlier.recipient) = (d.alert_id, d.channel, d.recipient))
    ORDER BY d.next_attempt_at, d.id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id
"""


def deliver(channel: str) -> int:
    """Sends what is due in a channel, for at most a minute, unless another process is at it. Returns how many."""
    count = 0
    until = time.monotonic() + RUN_SECONDS
    # Asked again after the lease: whoever was woken while it was ours has gone away.
    while time.monotonic() < until and channel in due_channels(now=timezone.now()):
        with lease(f"alerts.{channel}", lasts=CHANNEL_LEASE) as ours:
            if not ours:
                break
            count += _drain(channel, until)
    return count


def due_channels(*, now: datetime) -> list[str]:
    """The channels in which something is due."""
    due = AlertDelivery.objects.filter(state="waiting", next_attempt_at__lte=now)
    return list(due.order_by("channel").values_list("channel", flat=True).distinct())


def wake_due(*, now: datetime) -> Sequence[str]:
    """Wakes every channel in which something is due. Returns their names."""
    due = due_channels(now=now)
    wake_alerts(due)
    return due


def take(channel: str, *, now: datetime) -> AlertDelivery | None:
    """The next delivery that is due, ours alone until its lease ends. None when there is none."""
    rows = sql.fetch(_TAKE, [uuid4(), now + LEASE, channel, now])
    if not rows:
        return None
    return AlertDelivery.objects.select_related("alert__tenant").get(pk=rows[0][0])


def send(delivery: AlertDelivery) -> bool:
    """Hands a taken delivery to its channel, and writes down what came of it. Whether it was delivered."""
    try:
        channels.channel(delivery.channel).send(notice_of(delivery))
    except NotDelivered as error:
        _note_failure(delivery, error)
    except Exception as error:
        log.exception("alert.channel_broken", channel=delivery.channel, delivery_id=delivery.pk)
        _note_failure(delivery, NotDelivered(type(error).__name__))
    else:
        now = timezone.now()
        _settle(delivery, state="delivered", next_attempt_at=None, delivered_at=now, error="")
        return True
    return False


def next_attempt(*, attempts: int, now: datetime, retry_after: float | None = None) -> datetime | None:
    """When to try again after so many attempts: a minute, then twice as long each time. None: not any more."""
    if attempts >= ATTEMPTS:
        return None
    wait = min(FIRST_WAIT * 2 ** (attempts - 1), LONGEST_WAIT)
    return now + max(wait, timedelta(seconds=retry_after or 0))


def _drain(channel: str, until: float) -> int:
    count = 0
    while time.monotonic() < until and (delivery := take(channel, now=timezone.now())):
        send(delivery)
        count += 1
    return count


def _note_failure(delivery: AlertDelivery, error: NotDelivered) -> None:
    now = timezone.now()
    at = (
        None
        if error.final
        else next_attempt(attempts=delivery.attempts, now=now, retry_after=error.retry_after)
    )
    state = "waiting" if at else "failed"
    log.warning("alert.not_delivered", channel=delivery.channel, delivery_id=delivery.pk, reason=str(error))
    _settle(delivery, state=state, next_attempt_at=at, error=str(error)[:300])


def _settle(delivery: AlertDelivery, **values: object) -> None:
    """Unless the lease ended and somebody else is at it: then theirs is the word that counts."""
    mine = Q(pk=delivery.pk, token=delivery.token, state="waiting")
    AlertDelivery.objects.filter(mine).update(token=None, **values)
