"""When a delivery is tried again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.factories import NOW
from webhooks.retrying import next_attempt, patience

SCHEDULE = [5, 300, 1800, 7200, 18_000, 36_000, 36_000]


@pytest.mark.parametrize(("attempts", "seconds"), list(enumerate(SCHEDULE, start=1)))
def test_follows_the_schedule_with_up_to_a_fifth_more(attempts: int, seconds: int) -> None:
    waits = [next_attempt(attempts=attempts, now=NOW) for _ in range(100)]

    least, most = NOW + timedelta(seconds=seconds), NOW + timedelta(seconds=seconds * 1.2)
    assert all(at and least <= at <= most for at in waits)
    assert len(set(waits)) > 1


def test_ends_after_about_a_day() -> None:
    assert timedelta(hours=24) < timedelta(seconds=sum(SCHEDULE)) < timedelta(hours=30)
    assert next_attempt(attempts=len(SCHEDULE) + 1, now=NOW) is None


def test_never_comes_before_what_the_receiver_asked_for() -> None:
    assert next_attempt(attempts=1, now=NOW, patience=timedelta(hours=1)) == NOW + timedelta(hours=1)
    assert next_attempt(attempts=1, now=NOW, patience=timedelta(days=30)) == NOW + timedelta(hours=12)
    shorter = next_attempt(attempts=2, now=NOW, patience=timedelta(seconds=1))
    assert shorter
    assert shorter >= NOW + timedelta(seconds=300)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("Sun, 29 Nov 2026 12:02:00 GMT", 120),
        ("Sun, 29 Nov 2026 12:02:00 -0000", 120),
        ("Sun, 29 Nov 2026 11:00:00 GMT", 0),
        ("99999999999999999999", 12 * 3600),
        ("soon", None),
        ("-5", None),
        ("²", None),
        ("", None),
    ],
)
def test_reads_retry_after(said: str, seconds: int | None) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)

    assert patience({"retry-after": said}, now=NOW) == expected
