"""Purging a queue: an order to cancel what waits on an instance, carried out in batches by whoever is there.

The order is a row, so it survives every process, and a page can tell how far it is. What is being sent goes on.
"""

from __future__ import annotations

import time
from datetime import datetime

from django.db import transaction
from django.db.models import F
from django.utils.translation import gettext as _

from instances.models import Instance
from messaging import status
from messaging.models import Purge, Status
from messaging.queues import waiting
from messaging.status import Move
from pilot import sql
from pilot.errors import PilotError

BATCH = 500
RUN_SECONDS = 20.0  # of one run; the next goes on

# Any of them: each half is served by a partial index of its own. status.move() locks in its order.
_TAKE = """
SELECT id FROM (
    (SELECT id FROM messaging_message
     WHERE instance_id = %s AND status = 'queued' AND next_attempt_at IS NULL AND created_at <= %s LIMIT %s)
    UNION ALL
    (SELECT id FROM messaging_message
     WHERE instance_id = %s AND status = 'queued' AND next_attempt_at IS NOT NULL AND created_at <= %s LIMIT %s)
) AS waiting LIMIT %s
"""


class AlreadyPurging(PilotError):
    """Somebody ordered it, and it is not done yet."""

    code = "already_purging"
    status = 409


def order(*, instance: Instance, before: datetime, now: datetime) -> Purge:
    """Orders that what was accepted until `before`, and waits, be cancelled. Raises AlreadyPurging.

    `before` is the moment at which somebody saw how much waits: what came later was not meant.
    """
    counted = waiting([instance.pk])[instance.pk]
    values = {
        "before": min(before, now),
        "total": counted.ready + counted.delayed,
        "started_at": now,
    }
    purge, made = Purge.objects.get_or_create(instance=instance, finished_at=None, defaults=values)
    if not made:
        raise AlreadyPurging(_("Its messages are being cancelled already."))
    return purge


def carry_out(*, now: datetime) -> int:
    """Goes on with what was ordered, for at most RUN_SECONDS. Returns how many messages were cancelled.

    Two may do it at once: each takes an order that nobody holds, one batch at a time.
    """
    until, total = time.monotonic() + RUN_SECONDS, 0
    while time.monotonic() < until:
        cancelled = _step(now)
        if cancelled is None:
            break
        total += cancelled
    return total


def _step(now: datetime) -> int | None:
    """One batch of one order; None when there is no order that is free."""
    with transaction.atomic():
        free = Purge.objects.select_for_update(skip_locked=True).filter(finished_at=None)
        purge = free.order_by("id").first()
        if purge is None:
            return None
        cancelled, found = _cancel(purge, now)
        rows = Purge.objects.filter(pk=purge.pk)
        rows.update(cancelled=F("cancelled") + cancelled, finished_at=now if found < BATCH else None)
    return cancelled


def _cancel(purge: Purge, now: datetime) -> tuple[int, int]:
    """How many were cancelled, of how many that waited: some may have been taken to be sent meanwhile."""
    half = [purge.instance_id, purge.before, BATCH]
    ids = [row[0] for row in sql.fetch(_TAKE, [*half, *half, BATCH])]
    moves = [
        Move(
            message_id=key,
            to=Status.CANCELLED,
            at=now,
            detail={"why": "purged"},
            only_from=frozenset({Status.QUEUED}),
        )
        for key in ids
    ]
    return len(status.move(*moves).changed), len(ids)
