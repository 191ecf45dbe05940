"""Counting what customers' endpoints answer, and how fast, for /metrics."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable

from pilot import tallies
from pilot.outbound import Answer, Unanswered

BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0)  # seconds


def count(results: Iterable[Answer | Unanswered]) -> None:
    """Adds attempts by outcome: a class of statuses such as `4xx`, or `no_answer`."""
    buckets: Counter[tuple[str, ...]] = Counter()
    seconds: dict[tuple[str, ...], float] = defaultdict(float)
    for result in results:
        outcome = f"{result.status // 100}xx" if isinstance(result, Answer) else "no_answer"
        buckets[outcome, str(bisect_right(BOUNDS, result.seconds))] += 1
        seconds[outcome,] += result.seconds
    tallies.add("webhook_seconds", buckets)
    tallies.add("webhook_seconds_sum", seconds)
