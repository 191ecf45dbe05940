"""What the full reconciler does about messages. The quick ones (reconciling.py, pulse.py) come first; this is the net.

Nothing here sends, and nothing queues what somebody may have sent: what was submitted is asked about.
Each batch locks what it changes, skips what somebody else holds, and ends its transaction before the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from messaging import acknowledging, announcing, lanes, pulse, receiving, reconciling, soundness, status
from messaging.models import Status
from messaging.status import Move
from pilot import locks, sql
from pilot.leading import Leadership
from pilot.maintenance import SEEN, Batches, Step
from pilot.reconciling import SETTLES_WITHIN

BATCH = 500


def _named(name: str, counts: Callable[[datetime], Iterator[int]]) -> Step:
    """A step of batches that only say how many."""
    return Step(name, lambda now: ({name: count} for count in counts(now)))


# --- what somebody was sending ----------------------------------------------------------------------------

# Without a lease no process ends it. The partial index for it is empty, as a rule.
_STRANDED = """
SELECT id FROM messaging_message
WHERE status = 'sending' AND lease_until IS NULL AND created_at <= %s ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
"""
# Without a time nobody looks it up.
_UNTIMED = """
UPDATE messaging_message SET next_attempt_at = %s WHERE id IN (
    SELECT id FROM messaging_message WHERE status = 'unconfirmed' AND next_attempt_at IS NULL
    LIMIT %s FOR UPDATE SKIP LOCKED)
"""


def doubt_stranded(now: datetime) -> Iterator[int]:
    """Messages in sending that nobody sends become unconfirmed: they may have gone out. Yields how many."""
    return reconciling.in_batches(_STRANDED, _doubt, now)


def _doubt(rows: list[Any], now: datetime) -> int:
    detail = {"code": "lease_expired"}
    moves = [
        Move(message_id=row[0], to=Status.UNCONFIRMED, at=now, next_attempt_at=now, detail=detail)
        for row in rows
    ]
    return len(status.move(*moves).changed)


def time_look_ups(now: datetime) -> Iterator[int]:
    """Unconfirmed messages without a time for their look-up get one. Yields how many."""
    while timed := sql.execute(_UNTIMED, [now, BATCH]):
        yield timed


def ask_about_unconfirmed(now: datetime) -> Batches:
    """Asks what became of them, for a bounded time; the quick reconciler goes on with the rest."""
    yield {"decided": reconciling.ask_about_unconfirmed(now=now)["decided"]}


def ask_about_submitted(now: datetime) -> Batches:
    """Asks for receipts that are missing, for a bounded time. Nothing that was submitted is ever sent again."""
    counts = acknowledging.ask(now=now)
    yield {name: counts.get(name, 0) for name in ("proved", "failed")}


# --- what should be on its way ----------------------------------------------------------------------------


def promote(now: datetime) -> Iterator[int]:
    """Makes messages ready whose time came a while ago. Yields how many."""
    while promoted := pulse.promote(now=now - SETTLES_WITHIN):
        yield promoted


def wake(now: datetime) -> Batches:
    """Wakes the instances that are free and have work. It only looks: a wake-up changes nothing."""
    yield {SEEN: pulse.beat(now=now)}


# --- news -------------------------------------------------------------------------------------------------


def apply_receipts(now: datetime) -> Iterator[int]:
    """Applies receipts whose message has its id by now. Yields how many."""
    while applied := receiving.apply_parked(now=now):
        yield applied


def announce(_now: datetime) -> Iterator[int]:
    """Numbers and announces events when no relay does. Yields how many.

    Raises redis.RedisError when Redis is away.
    """
    leadership = Leadership(locks.RELAY)
    try:
        while leadership.hold() and (announced := announcing.relay()):
            yield announced
    finally:
        leadership.release()


SWEEPS = (
    _named("expired", reconciling.expirations),
    Step("queue", soundness.check_queue),
    _named("leases", reconciling.releases),
    _named("stranded", doubt_stranded),
    _named("untimed", time_look_ups),
    Step("unconfirmed", ask_about_unconfirmed),
    _named("given_up", reconciling.give_ups),
    Step("submitted", ask_about_submitted),
    _named("lanes_made", lanes.make_missing),
    _named("lanes_freed", lanes.free_resting),
    _named("lanes_recounted", lanes.recount),
    _named("promoted", promote),
    Step("wake", wake),
    _named("receipts", apply_receipts),
    _named("announced", announce),
)
