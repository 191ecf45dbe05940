"""When a delivery is tried again: arithmetic only."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from django.conf import settings

JITTER = 0.2  # so that what failed together does not come back together
# A receiver may ask for more patience than the schedule has, within reason.
LONGEST_PATIENCE = timedelta(hours=12)


def next_attempt(*, attempts: int, now: datetime, patience: timedelta | None = None) -> datetime | None:
    """When to try again after `attempts` attempts; None when that was the last.

    Follows settings.WEBHOOK_RETRIES, each up to 20 % longer, and never comes before `patience`, which is what the
    receiver's Retry-After asked for (12 h at most).
    """
    if attempts > len(settings.WEBHOOK_RETRIES):
        return None
    wait = settings.WEBHOOK_RETRIES[attempts - 1] * (1 + random.uniform(0, JITTER))
    return now + max(wait, min(patience or timedelta(), LONGEST_PATIENCE))


def patience(headers: Mapping[str, str], *, now: datetime) -> timedelta | None:
    """What Retry-After asks for, in seconds or as a date; None where it says nothing that can be read."""
    said = headers.get("retry-after", "").strip()
    if said.isascii() and said.isdigit():
        return timedelta(seconds=min(int(said[:9]), LONGEST_PATIENCE.total_seconds()))
    try:
        until = parsedate_to_datetime(said)
    except (TypeError, ValueError):
        return None
    aware = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(aware - now, timedelta())
