"""What a run prints: one JSON line for machines, and a page for whoever reads along."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from launcher.chaos.ledger import Finding

DELIVERED = ("delivered", "read", "played")
HANDED_OVER = ("submitted", "sent")
FAILED, OUTCOME_UNKNOWN = "failed:", "failed:outcome_unknown"
BROKEN_PROMISES = ("lost", "duplicates", "late", "wrong_status", "unannounced")
# A product that sends nothing keeps every other promise.
LEAST_SENT = 0.5


@dataclass(frozen=True, kw_only=True)
class Report:
    """A finished run. `ends` counts how accepted messages ended (ledger.tally); their sum is `accepted`."""

    seed: int
    seconds: float
    accepted: int
    refused: int
    unanswered: int
    ends: Counter[str]
    faults: Counter[str]
    findings: Sequence[Finding] = field(default_factory=tuple)
    stuck_lanes: int = 0

    def line(self) -> str:
        """The JSON line."""
        delivered, sent = self._ended(DELIVERED), self._ended(HANDED_OVER)
        failed = {end.removeprefix(FAILED): count for end, count in sorted(self.ends.items()) if _known(end)}
        values = {
            "accepted": self.accepted,
            "delivered": delivered,
            "sent": sent,
            "failed_by_code": failed,
            "unknown": self.ends[OUTCOME_UNKNOWN],
            **{kind: self._broken(kind) for kind in BROKEN_PROMISES},
            "faults": self.faults.total(),
            "seconds": round(self.seconds, 1),
            "seed": self.seed,
        }
        return json.dumps(values)

    def problems(self) -> list[str]:
        """Why the run failed; empty when every promise was kept, and there was something to keep."""
        problems = [f"{kind}: {count}" for kind in BROKEN_PROMISES if (count := self._broken(kind))]
        if self.ends.total() != self.accepted:
            problems.append(f"{self.accepted} were accepted and {self.ends.total()} ended")
        if self.unanswered:
            problems.append(f"{self.unanswered} requests were never answered")
        if self.stuck_lanes:
            problems.append(f"{self.stuck_lanes} lanes count sends in flight when there are none")
        if self._ended(DELIVERED + HANDED_OVER) < LEAST_SENT * self.accepted:
            problems.append("fewer than half of the messages went out, so that little was tried")
        return problems

    def _broken(self, kind: str) -> int:
        """Messages, not findings: one message may be wrong in several ways."""
        return len({finding.number for finding in self.findings if finding.kind == kind})

    def _ended(self, ends: Sequence[str]) -> int:
        return sum(self.ends[end] for end in ends)


def _known(end: str) -> bool:
    return end.startswith(FAILED) and end != OUTCOME_UNKNOWN
