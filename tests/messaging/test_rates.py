"""How fast messages may leave a number, and to one person."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from messaging import rates

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize("per_second", [1, 20, 80, 1000])
@pytest.mark.parametrize("every", [0.001, 0.013, 0.2])
def test_never_lets_more_leave_in_any_second_than_the_provider_takes(
    per_second: int, every: float, now: datetime
) -> None:
    """Whoever asks, however often, over ten seconds in which there is always something to send."""
    next_at, at, sent = now - timedelta(hours=1), now, []
    while at < now + 10 * SECOND:
        count = rates.allowed(next_at, per_second=per_second, now=at)
        next_at = rates.after(next_at, count, per_second=per_second, now=at) if count else next_at
        sent += [at] * count
        at += timedelta(seconds=every)

    most = max(sum(start <= moment < start + SECOND for moment in sent) for start in set(sent))
    assert most <= per_second + 1
    if every < 0.05:
        assert len(sent) >= 10 * per_second * rates.SHARE * 0.98


def test_lets_nothing_leave_before_its_time(now: datetime) -> None:
    assert rates.allowed(now + timedelta(milliseconds=1), per_second=1000, now=now) == 0
    assert rates.allowed(now, per_second=1, now=now) == 1


def test_saves_up_no_more_than_a_moment(now: datetime) -> None:
    assert rates.allowed(now - timedelta(days=1), per_second=1000, now=now) == 48


def test_holds_back_what_is_too_much_for_one_person(now: datetime) -> None:
    full_at = None
    for _message in range(rates.PAIR_BURST):
        assert rates.held_until(full_at, now=now) is None
        full_at = rates.full_after(full_at, now=now)

    until = rates.held_until(full_at, now=now)
    assert until == now + rates.PAIR_INTERVAL
    assert rates.held_until(full_at, now=until) is None


def test_forgets_what_is_long_ago(now: datetime) -> None:
    assert rates.full_after(now - timedelta(days=1), now=now) == now + rates.PAIR_INTERVAL
