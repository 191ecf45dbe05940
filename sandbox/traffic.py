"""The last requests the emulators were asked, for tests that count provider calls."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

KEPT = 20_000


@dataclass
class Entry:
    """`outcome` is the HTTP status as text, `cut`, `hang`, or `running` while unanswered."""

    seq: int
    op: str
    instance: str
    number: str
    at: float = field(default_factory=time.time)
    seconds: float = 0.0
    outcome: str = "running"

    def close(self, outcome: str) -> None:
        self.outcome = outcome
        self.seconds = round(time.time() - self.at, 4)


class Traffic:
    def __init__(self) -> None:
        self._entries: deque[Entry] = deque(maxlen=KEPT)
        self._seq = 0

    def open(self, *, op: str, instance: str, number: str) -> Entry:
        self._seq += 1
        entry = Entry(seq=self._seq, op=op, instance=instance, number=number)
        self._entries.append(entry)
        return entry

    def read(self, *, after: int = 0, op: str | None = None) -> list[dict[str, Any]]:
        return [asdict(e) for e in self._entries if e.seq > after and op in (None, e.op)]

    def wipe(self) -> None:
        self._entries.clear()
