"""How fast a provider lets messages leave: generic cell rates, as pure arithmetic over one time in a row.

Of a number: `next_send_at` of its lane. It may lie in the past, and by so much, up to BURST, a number may be ahead of
its rate. Of a number to one person: `full_at` of the window, up to which everything is used up.
"""

from __future__ import annotations

from datetime import datetime, timedelta

# A little less than the provider allows: its clock and its seconds are not ours.
SHARE = 0.95
BURST = timedelta(seconds=0.05)
# Meta: one message in 6 s to the same person, of which 45 may be borrowed from the future.
PAIR_INTERVAL = timedelta(seconds=6)
PAIR_BURST = 40


def allowed(next_send_at: datetime, *, per_second: int, now: datetime) -> int:
    """How many messages may leave at once; at least one where `next_send_at` is not in the future."""
    if next_send_at > now:
        return 0
    return int((now - _start(next_send_at, now)) / _interval(per_second)) + 1


def after(next_send_at: datetime, count: int, *, per_second: int, now: datetime) -> datetime:
    """The new `next_send_at` when `count` messages leave."""
    return _start(next_send_at, now) + count * _interval(per_second)


def held_until(full_at: datetime | None, *, now: datetime) -> datetime | None:
    """None when a message may go to this person now, else when the next one may."""
    latest = now + (PAIR_BURST - 1) * PAIR_INTERVAL
    return None if full_at is None or full_at <= latest else now + (full_at - latest)


def full_after(full_at: datetime | None, *, now: datetime) -> datetime:
    """The new `full_at` when a message goes to this person."""
    return max(full_at or now, now) + PAIR_INTERVAL


def _start(next_send_at: datetime, now: datetime) -> datetime:
    return max(next_send_at, now - BURST)


def _interval(per_second: int) -> timedelta:
    return timedelta(seconds=1 / (per_second * SHARE))
