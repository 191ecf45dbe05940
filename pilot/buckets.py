"""Token buckets that all processes share: how fast something may be asked for, and how much at once.

Kept in Redis, by its clock, and asked for with one script in one round trip. While Redis is away each process counts
for itself: a limit is then looser by the number of processes, and nobody waits.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import structlog
from django.conf import settings
from redis.commands.core import Script
from redis.exceptions import RedisError

from pilot.redis import connect

log = structlog.get_logger(__name__)

DOWN_SECONDS = 2.0  # how long to leave Redis alone after it failed
SLACK = 0.0001  # tokens; more than what is lost when moments are rounded. The script has it, too.
MOST_KEPT = 10_000

# A bucket is kept as one number: the moment at which it is full again; no key: it is full.
# KEYS: the buckets of each demand. ARGV: buckets per demand; then, for each demand, its tokens, and rate and burst of
# each bucket. Answers, for each demand, the tokens granted, and the seconds until each of its buckets is full.
SCRIPT = """
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local width, answer, key, arg = tonumber(ARGV[1]), {}, 0, 2
while ARGV[arg] do
  local granted, fulls = tonumber(ARGV[arg]), {}
  for i = 1, width do
    local rate, burst = tonumber(ARGV[arg + 2 * i - 1]), tonumber(ARGV[arg + 2 * i])
    fulls[i] = math.max(tonumber(redis.call('GET', KEYS[key + i]) or 0), now)
    granted = math.min(granted, math.floor(burst - (fulls[i] - now) * rate + 0.0001))
  end
  granted = math.max(granted, 0)
  answer[#answer + 1] = granted
  for i = 1, width do
    local full = fulls[i] + granted / tonumber(ARGV[arg + 2 * i - 1])
    if granted > 0 then
      redis.call('SET', KEYS[key + i], string.format('%.6f', full), 'PX', math.ceil((full - now) * 1000))
    end
    answer[#answer + 1] = string.format('%.6f', full - now)
  end
  key, arg = key + width, arg + 1 + 2 * width
end
return answer
"""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Holds `burst` tokens at most, and gets `rate` of them a second. `policy` is what clients know it by."""

    policy: str
    name: str
    rate: float
    burst: int


@dataclass(frozen=True, slots=True)
class Demand:
    """Tokens that are taken from all of `buckets` or from none: as many as all of them have."""

    buckets: tuple[Bucket, ...]
    tokens: int = 1


@dataclass(frozen=True)
class Drawn:
    """What a demand got, and in how many seconds each of its buckets is full again. Requests that were counted together
    share one."""

    buckets: tuple[Bucket, ...]
    granted: int
    full_in: tuple[float, ...]

    def wait(self) -> float:
        """Seconds until there is a token in each bucket."""
        return max(0.0, *(full_in - (b.burst - 1) / b.rate for b, full_in in self._each()))

    @cached_property
    def headers(self) -> dict[str, str]:
        """RateLimit-Policy and RateLimit, as draft-ietf-httpapi-ratelimit-headers-11 has them."""
        policies = [f'"{b.policy}";q={b.burst};w={math.ceil(b.burst / b.rate)}' for b in self.buckets]
        levels = [
            f'"{b.policy}";r={max(0, int(b.burst - full_in * b.rate + SLACK))};t={math.ceil(full_in)}'
            for b, full_in in self._each()
        ]
        return {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(levels)}

    def _each(self) -> list[tuple[Bucket, float]]:
        return list(zip(self.buckets, self.full_in, strict=True))


class Buckets:
    """Takes tokens: from Redis, or by own counting while it is away."""

    def __init__(self) -> None:
        self._down_until = 0.0
        self._own = OwnCount()

    def draw(self, demands: Sequence[Demand]) -> list[Drawn]:
        """What each of the demands gets, which all have the same number of buckets. Never raises, and waits for an
        answer of Redis no longer than RATE_LIMIT_WAIT."""
        if not demands:
            return []
        if not self._may_ask():
            return self._own.draw(demands)
        try:
            drawn = self._shared(demands)
        except RedisError as error:
            self._down_until = time.monotonic() + DOWN_SECONDS
            log.warning("buckets.redis_away", error=str(error))
            return self._own.draw(demands)
        self._down_until = 0.0
        return drawn

    def _may_ask(self) -> bool:
        """While Redis is away one caller, every DOWN_SECONDS, finds out for all whether it is back."""
        now = time.monotonic()
        if now < self._down_until:
            return False
        if self._down_until:
            self._down_until = now + DOWN_SECONDS
        return True

    def _shared(self, demands: Sequence[Demand]) -> list[Drawn]:
        width = len(demands[0].buckets)
        names = [f"pilot:bucket:{bucket.name}" for demand in demands for bucket in demand.buckets]
        answer: list[Any] = self._script(
            names, [width, *(each for demand in demands for each in _words(demand))]
        )
        rows = [answer[at : at + 1 + width] for at in range(0, len(answer), 1 + width)]
        return [
            Drawn(demand.buckets, int(row[0]), tuple(map(float, row[1:])))
            for demand, row in zip(demands, rows, strict=True)
        ]

    @cached_property
    def _script(self) -> Script:
        return connect(timeout=settings.RATE_LIMIT_WAIT.total_seconds()).register_script(SCRIPT)


class OwnCount:
    """The same arithmetic as the script, in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._full_at: dict[str, float] = {}

    def draw(self, demands: Sequence[Demand]) -> list[Drawn]:
        """What each of the demands gets."""
        now = time.monotonic()
        with self._lock:
            if len(self._full_at) > MOST_KEPT:
                self._full_at = {name: at for name, at in self._full_at.items() if at > now}
            return [self._take(demand, now) for demand in demands]

    def _take(self, demand: Demand, now: float) -> Drawn:
        full_in = [max(self._full_at.get(b.name, now) - now, 0.0) for b in demand.buckets]
        left = [b.burst - wait * b.rate + SLACK for b, wait in zip(demand.buckets, full_in, strict=True)]
        granted = max(0, min(demand.tokens, *map(math.floor, left)))
        after = [wait + granted / b.rate for b, wait in zip(demand.buckets, full_in, strict=True)]
        self._full_at.update({b.name: now + wait for b, wait in zip(demand.buckets, after, strict=True)})
        return Drawn(demand.buckets, granted, tuple(after))


def _words(demand: Demand) -> list[float]:
    return [demand.tokens, *(number for bucket in demand.buckets for number in (bucket.rate, bucket.burst))]


BUCKETS = Buckets()
