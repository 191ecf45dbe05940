"""Finds instances that say they are open and do not deliver, by what became of their messages.

    acks missing     message after message was taken over, and the provider, asked, knows of no receipt for any
    unconfirmed      of the last sends, too many have an outcome that nobody knows
    canary lost      a message to itself was taken over and did not arrive

Only of providers whose connection can be dead, and each needs messages to go by: one without traffic is never
suspected. Webhooks that are silent are found in webhooks/listening.py. What is found is drained, restarted and told of
by instances/health.py; only what was sent since the instance opened, and since it last proved to deliver, counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db import connection

from instances import health
from instances.providers import names_with
from messaging import canaries
from pilot.leases import lease

LEASE = timedelta(minutes=4)  # longer than a run
# Phones that are switched off give no receipts: several people must be waiting, and not long ago.
LEAST_RECIPIENTS = 3
MISSING_WITHIN = timedelta(hours=1)
# After so long the outcomes of sends count anew, however few there were.
JUDGED_EVERY = timedelta(hours=1)


class Suspicion(NamedTuple):
    """An instance and what speaks against it: `found` of `expected` messages."""

    instance_id: int
    found: int
    expected: int


def validate(*, now: datetime) -> dict[str, int]:
    """State and presence of open instances, then what their messages say of them. Returns counts.

    One run at a time.
    """
    with lease("messaging.validate", lasts=LEASE) as ours:
        if not ours:
            return {}
        counts = health.validate(now=now)
        counts["acks_missing"] = _suspect("acks_missing", _missing(now), now)
        counts["unconfirmed"] = _suspect("unconfirmed", _unconfirmed(), now)
        counts["canary_lost"] = _suspect(
            "canary_lost", [Suspicion(key, 1, 1) for key in canaries.lost(now=now)], now
        )
        counts["canaries"] = canaries.send(now=now)
        _judged(now)
    return {word: count for word, count in counts.items() if count}


def _suspect(reason: str, suspicions: Sequence[Suspicion], now: datetime) -> int:
    return sum(
        health.suspect(
            instance_id=each.instance_id,
            reason=reason,
            evidence={"found": each.found, "expected": each.expected},
            now=now,
        )
        for each in suspicions
    )


# A message that was asked about has a later time for the next question than the one it got when it was taken over, so
# it is the provider that knows of no receipt, not we that have not read its webhooks yet.
_MISSING = """
SELECT m.instance_id, count(*), count(*)
FROM messaging_message m
JOIN instances_instance i ON i.id = m.instance_id
LEFT JOIN instances_vitals v ON v.instance_id = m.instance_id
WHERE m.status = 'submitted' AND m.next_attempt_at > m.submitted_at + %(asked_after)s
  AND m.submitted_at BETWEEN %(now)s - %(within)s AND %(now)s - %(after)s
  AND m.submitted_at > greatest(i.status_changed_at, v.acknowledged_at)
  AND i.status = 'open' AND i.provider = ANY(%(providers)s)
GROUP BY m.instance_id
HAVING count(*) >= %(least)s AND count(DISTINCT m."to") >= %(recipients)s
"""


def _missing(now: datetime) -> list[Suspicion]:
    values = {
        "providers": names_with("find", "restart"),
        "now": now,
        "within": MISSING_WITHIN,
        "after": settings.ACKS_MISSING_AFTER,
        "asked_after": settings.ACK_POLL_AFTER,
        "least": settings.ACKS_MISSING_LEAST,
        "recipients": min(LEAST_RECIPIENTS, settings.ACKS_MISSING_LEAST),
    }
    return _fetch(_MISSING, values)


# The lane counts the sends of the day that may have gone out: the difference is what was sent since the last judgement.
_SENDS = """
    CASE WHEN lane.sent_on = v.judged_on THEN greatest(lane.sent_count - v.judged_count, 0) ELSE lane.sent_count END
"""
_UNCONFIRMED = f"""
SELECT i.id, unknown.count, sends.count
FROM (
    SELECT m.instance_id, count(*) FROM messaging_message m
    JOIN instances_vitals v ON v.instance_id = m.instance_id
    JOIN instances_instance i ON i.id = m.instance_id
    WHERE m.status = 'unconfirmed' AND m.attempted_at > greatest(v.judged_at, i.status_changed_at)
    GROUP BY m.instance_id
) AS unknown
JOIN instances_instance i ON i.id = unknown.instance_id
JOIN instances_lane lane ON lane.instance_id = i.id
JOIN instances_vitals v ON v.instance_id = i.id
CROSS JOIN LATERAL (SELECT greatest({_SENDS}, unknown.count)) AS sends (count)
WHERE i.status = 'open' AND i.provider = ANY(%(providers)s)
  AND unknown.count >= %(least)s AND unknown.count * 100 >= sends.count * %(percent)s
"""


def _unconfirmed() -> list[Suspicion]:
    values = {
        "providers": names_with("restart"),
        "least": settings.UNCONFIRMED_LEAST,
        "percent": settings.UNCONFIRMED_PERCENT,
    }
    return _fetch(_UNCONFIRMED, values)


_JUDGED = f"""
INSERT INTO instances_vitals AS known (instance_id, judged_at, judged_on, judged_count, unheard, canary_id)
SELECT lane.instance_id, %(now)s, lane.sent_on, lane.sent_count, 0, ''
FROM instances_lane lane
JOIN instances_instance i ON i.id = lane.instance_id
LEFT JOIN instances_vitals v ON v.instance_id = lane.instance_id
WHERE i.status IN ('open', 'degraded')
  AND (v.judged_at IS NULL OR v.judged_at <= %(now)s - %(every)s OR {_SENDS} >= %(enough)s)
ORDER BY lane.instance_id
ON CONFLICT (instance_id) DO UPDATE
SET judged_at = excluded.judged_at, judged_on = excluded.judged_on, judged_count = excluded.judged_count
"""


def _judged(now: datetime) -> None:
    """Begins a new count where enough was sent: twice what is judged by, as the last outcomes are not known yet."""
    values: dict[str, Any] = {"now": now, "every": JUDGED_EVERY, "enough": 2 * settings.UNCONFIRMED_LEAST}
    with connection.cursor() as cursor:
        cursor.execute(_JUDGED, values)


def _fetch(statement: str, values: dict[str, Any]) -> list[Suspicion]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return [Suspicion(*row) for row in cursor.fetchall()]
