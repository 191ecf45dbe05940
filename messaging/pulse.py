"""The pulse: every second, what became due is made ready, and instances that are free and have work are woken.

It is what makes a lost wake-up cost a second or two and nothing else. Safe to run twice at once: one of the two
returns.
"""

from __future__ import annotations

from datetime import datetime

from django.db import connection, transaction

from messaging.dispatching import shared_dispatcher
from pilot import locks
from pilot.celery import wake_in_shards

PROMOTED_AT_ONCE = 500
WOKEN_AT_ONCE = 500

_PROMOTE = """
UPDATE messaging_message SET next_attempt_at = NULL WHERE id IN (
    SELECT id FROM messaging_message
    WHERE status = 'queued' AND next_attempt_at IS NOT NULL AND next_attempt_at <= %s
    ORDER BY next_attempt_at LIMIT %s FOR UPDATE SKIP LOCKED)
"""

# Instances are filtered first; the lateral probe cannot be turned into a join over everything that is queued. A lane
# that keeps no pace and sent within the last second is being served, and whoever serves it looks again by itself: half
# of a busy worker's time went into tokens that told it so.
_DUE = """
SELECT lane.instance_id FROM instances_lane lane
JOIN instances_instance i ON i.id = lane.instance_id
LEFT JOIN instances_breaker b ON b.server_id = i.server_id
CROSS JOIN LATERAL (
    SELECT m.urgent FROM messaging_message m
    WHERE m.instance_id = lane.instance_id AND m.status = 'queued' AND m.next_attempt_at IS NULL
    ORDER BY m.urgent DESC LIMIT 1
) AS work
WHERE i.status = 'open' AND NOT i.paused AND lane.in_flight < i.concurrency
  AND (lane.next_send_at <= %(now)s OR (work.urgent AND lane.next_urgent_at <= %(now)s))
  AND (lane.next_send_at <= %(now)s - interval '1 second'
       OR (i.pace_most_seconds > 0 AND i.messages_per_second IS NULL))
  AND (b.open_until IS NULL
       OR (b.open_until <= %(now)s AND (b.probe_until IS NULL OR b.probe_until <= %(now)s)))
ORDER BY lane.next_send_at LIMIT %(limit)s
"""


def beat(*, now: datetime) -> int:
    """One pulse. Returns how many instances were woken."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [locks.PULSE])
        if not cursor.fetchone()[0]:
            return 0
        promote(now=now)
        cursor.execute(_DUE, {"now": now, "limit": WOKEN_AT_ONCE})
        due = [row[0] for row in cursor.fetchall()]
    return wake_in_shards(due)


def promote(*, now: datetime) -> int:
    """Makes messages ready whose `next_attempt_at` has come: at most 500, the longest due first."""
    with connection.cursor() as cursor:
        cursor.execute(_PROMOTE, [now, PROMOTED_AT_ONCE])
        return cursor.rowcount


def drain(*instance_ids: int) -> None:
    """Hands wake-ups to this process's dispatcher, which may find that somebody else was faster."""
    shared_dispatcher().wake(*instance_ids)
