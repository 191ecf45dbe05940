"""Graph's rate limits on a clock that tests can advance: throughput of a number, and of a number to one person."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sandbox.graph.errors import GraphError

PAIR_SECONDS = 6.0
PAIR_BURST = 45


@dataclass
class Clock:
    """The emulator's time: the machine's, moved by `advance`."""

    offset: float = 0.0

    def now(self) -> float:
        return time.time() + self.offset

    def advance(self, seconds: float) -> None:
        self.offset += seconds


@dataclass
class Limits:
    """Generic cell rates: each bucket is the time at which it is full again."""

    clock: Clock
    _full_at: dict[tuple[str, str], float] = field(default_factory=dict)

    def take(self, *, account: str, per_second: int, person: str) -> None:
        """Counts one message. Raises GraphError 130429 or 131056; what is refused is not counted."""
        mps = self._next((account, ""), 1 / per_second, burst=per_second)
        if mps is None:
            raise GraphError(130429, "Cloud API message throughput has been reached.", retry_after=1)
        pair = self._next((account, person), PAIR_SECONDS, burst=PAIR_BURST)
        if pair is None:
            raise GraphError(131056)
        self._full_at |= {(account, ""): mps, (account, person): pair}

    def _next(self, key: tuple[str, str], interval: float, *, burst: int) -> float | None:
        now = self.clock.now()
        full_at = max(self._full_at.get(key, now), now)
        return None if full_at - now > (burst - 1) * interval + 1e-9 else full_at + interval

    def wipe(self) -> None:
        self._full_at.clear()
        self.clock.offset = 0.0
