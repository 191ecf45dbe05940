"""The back-off: 30 s doubled, with jitter, inside the deadline, ten times at most."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from messaging.retry import ATTEMPTS, next_attempt
from tests.factories import NOW

FAR = NOW + timedelta(days=7)


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 30), (2, 60), (3, 120), (4, 240), (5, 480), (9, 7680)])
def test_doubles_with_each_attempt_give_or_take_a_fifth(attempts: int, seconds: int) -> None:
    delays = {
        next_attempt(attempts=attempts, now=NOW, deliver_until=FAR, random_=random.Random(seed))
        for seed in range(50)
    }

    waits = [(at - NOW).total_seconds() for at in delays if at is not None]
    assert len(waits) == 50
    assert all(0.8 * seconds <= wait <= 1.2 * seconds for wait in waits)


def test_ends_after_the_last_attempt() -> None:
    assert next_attempt(attempts=ATTEMPTS, now=NOW, deliver_until=FAR) is None


def test_never_passes_the_deadline() -> None:
    assert next_attempt(attempts=1, now=NOW, deliver_until=NOW + timedelta(seconds=20)) is None


def test_respects_the_providers_word() -> None:
    at = next_attempt(attempts=1, now=NOW, deliver_until=FAR, retry_after=300)

    assert at == NOW + timedelta(seconds=300)
