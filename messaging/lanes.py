"""Lanes that are wrong keep an instance from sending: none, one that rests for ever, one that counts what has ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db import transaction

from instances.models import LONGEST_PACE_SECONDS
from pilot import sql

BATCH = 500
# No pace and no rest is longer than this: a clock jumped.
LONGEST_REST = timedelta(seconds=2 * LONGEST_PACE_SECONDS)

_MAKE = """
INSERT INTO instances_lane (instance_id, in_flight, next_send_at, next_urgent_at, held_by, turn, sent_count)
SELECT id, 0, %s, %s, '', 0, 0 FROM instances_instance i
WHERE status <> 'removed' AND NOT EXISTS (SELECT FROM instances_lane lane WHERE lane.instance_id = i.id)
LIMIT %s ON CONFLICT DO NOTHING
"""
_FREE = """
UPDATE instances_lane SET next_send_at = least(next_send_at, %s), next_urgent_at = least(next_urgent_at, %s)
WHERE instance_id IN (
    SELECT instance_id FROM instances_lane WHERE next_send_at > %s OR next_urgent_at > %s
    LIMIT %s FOR UPDATE SKIP LOCKED)
"""
_LEASES = """
SELECT instance_id, count(*) AS leases FROM messaging_message WHERE lease_until IS NOT NULL GROUP BY instance_id
"""
_MISCOUNTED = f"""
SELECT lane.instance_id FROM instances_lane lane LEFT JOIN ({_LEASES}) AS held USING (instance_id)
WHERE lane.in_flight <> coalesce(held.leases, 0) AND lane.instance_id > %s ORDER BY lane.instance_id LIMIT %s
"""
_LOCK = "SELECT instance_id FROM instances_lane WHERE instance_id = ANY(%s) ORDER BY instance_id FOR UPDATE SKIP LOCKED"
_RECOUNT = f"""
UPDATE instances_lane lane SET in_flight = coalesce(held.leases, 0)
FROM unnest(%s::bigint[]) AS locked (instance_id) LEFT JOIN ({_LEASES}) AS held USING (instance_id)
WHERE lane.instance_id = locked.instance_id AND lane.in_flight <> coalesce(held.leases, 0)
"""


def make_missing(now: datetime) -> Iterator[int]:
    """An instance without a lane never gets a turn. Yields how many got one."""
    while made := sql.execute(_MAKE, [now, now, BATCH]):
        yield made


def free_resting(now: datetime) -> Iterator[int]:
    """Lanes whose next send is further away than any pace. Yields how many may send again."""
    latest = now + LONGEST_REST
    while freed := sql.execute(_FREE, [now, now, latest, latest, BATCH]):
        yield freed


def recount(_now: datetime) -> Iterator[int]:
    """Lanes that count other sends in flight than there are leases. Yields how many were put right.

    A claim and a settlement change both under the lane's lock, so under it, and only there, they must agree.
    """
    after = 0
    while suspects := [row[0] for row in sql.fetch(_MISCOUNTED, [after, BATCH])]:
        after = suspects[-1]
        with transaction.atomic():
            locked = [row[0] for row in sql.fetch(_LOCK, [suspects])]
            corrected = sql.execute(_RECOUNT, [locked])
        yield corrected
