"""A reader of the status stream that keeps its own count: every event must have been announced, in order, while Redis
was there to hear it. What the relay says of itself is not enough.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from launcher.chaos.faults import Outage

STREAM = "stream:status"
AT_ONCE = 1000
BLOCK_MS = 200
AGAIN_AFTER = 0.2  # seconds, while Redis is away


@dataclass(frozen=True, slots=True)
class Hole:
    """Positions that were not heard, between two that were, heard at these times (monotonic clock)."""

    after: int
    before: int
    since: float
    until: float

    def excused(self, outages: Sequence[Outage]) -> bool:
        """Whether Redis lost something in that time."""
        return any(outage.began <= self.until and outage.ended >= self.since for outage in outages)


class Listener:
    """Reads the stream in a thread until told to stop."""

    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(url, socket_timeout=2.0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)
        self._last_id: Any = "0"
        self._read_at = time.monotonic()
        self.heard: dict[int, tuple[str, str]] = {}
        self.highest = 0
        self.holes: list[Hole] = []

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Read what is still there, and end."""
        self._over.set()
        self._thread.join()
        self._redis.close()

    def wrong(self, numbered: Mapping[int, tuple[str, str]], outages: Sequence[Outage]) -> Iterator[str]:
        """Holes that no outage explains, and announcements that say something else than the row."""
        for hole in self.holes:
            if not hole.excused(outages):
                yield f"positions {hole.after + 1} to {hole.before - 1} were not announced"
        for position, said in self.heard.items():
            if numbered.get(position) != said:
                yield f"position {position} was announced as {said}, and is {numbered.get(position)}"

    def _run(self) -> None:
        while True:
            ending = self._over.is_set()
            try:
                found: Any = self._redis.xread({STREAM: self._last_id}, count=AT_ONCE, block=BLOCK_MS)
            except redis.RedisError:
                self._over.wait(AGAIN_AFTER)
                continue
            self._take_in(found[0][1] if found else [])
            if ending and not found:
                return

    def _take_in(self, entries: Sequence[tuple[Any, Mapping[bytes, bytes]]]) -> None:
        now = time.monotonic()
        for self._last_id, fields in entries:
            payload = json.loads(fields[b"payload"])
            self._note(payload["position"], (payload["internalId"], payload["kind"]), now)
        if entries:  # that there is nothing to read does not show that nothing was lost before
            self._read_at = now

    def _note(self, position: int, said: tuple[str, str], now: float) -> None:
        if position > self.highest + 1:
            self.holes.append(Hole(self.highest, position, since=self._read_at, until=now))
        self.highest = max(self.highest, position)
        self.heard[position] = said
