"""When to try again: pure arithmetic over what the row knows."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

FIRST_DELAY = timedelta(seconds=30)
ATTEMPTS = 10
JITTER = 0.2  # a fifth of the delay, either way


def next_attempt(
    *,
    attempts: int,
    now: datetime,
    deliver_until: datetime,
    retry_after: float | None = None,
    random_: random.Random | None = None,
) -> datetime | None:
    """The time of the next attempt after `attempts` failed ones, or None when there is no point in another.

    30 s, 1, 2, 4 min …, with jitter; never before `retry_after` (seconds, the provider's word), never past the
    deadline, never more than ten attempts.
    """
    if attempts >= ATTEMPTS:
        return None
    delay = FIRST_DELAY * 2 ** max(attempts - 1, 0)
    delay *= 1 + (random_ or random).uniform(-JITTER, JITTER)
    delay = max(delay, timedelta(seconds=retry_after or 0))
    at = now + delay
    return at if at < deliver_until else None
