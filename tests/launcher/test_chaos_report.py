"""What a chaos run prints, and when it fails."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from launcher.chaos.ledger import Finding
from launcher.chaos.report import Report


def report(**fields: Any) -> Report:
    values: dict[str, Any] = {
        "seed": 7,
        "seconds": 61.26,
        "accepted": 100,
        "refused": 2,
        "unanswered": 0,
        "ends": Counter(
            {"read": 80, "delivered": 5, "sent": 3, "failed:expired": 10, "failed:outcome_unknown": 2}
        ),
        "faults": Counter({"kill": 3, "hang": 2}),
    }
    return Report(**values | fields)


def test_prints_one_line_whose_ends_add_up() -> None:
    line = report().line()

    assert "\n" not in line
    assert json.loads(line) == {
        "accepted": 100,
        "delivered": 85,
        "sent": 3,
        "failed_by_code": {"expired": 10},
        "unknown": 2,
        "lost": 0,
        "duplicates": 0,
        "late": 0,
        "wrong_status": 0,
        "unannounced": 0,
        "faults": 5,
        "seconds": 61.3,
        "seed": 7,
    }
    assert report().problems() == []


@pytest.mark.parametrize("kind", ["lost", "duplicates", "late", "wrong_status", "unannounced"])
def test_fails_for_each_kind_of_broken_promise_and_counts_messages(kind: str) -> None:
    broken = report(findings=[Finding(kind, 1, "a"), Finding(kind, 1, "b"), Finding(kind, 2, "c")])

    assert json.loads(broken.line())[kind] == 2
    assert broken.problems() == [f"{kind}: 2"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"unanswered": 1}, "1 requests were never answered"),
        ({"stuck_lanes": 2}, "2 lanes count sends in flight when there are none"),
        ({"accepted": 101}, "101 were accepted and 100 ended"),
        (
            {"ends": Counter({"failed:expired": 60, "read": 40})},
            "fewer than half of the messages went out, so that little was tried",
        ),
    ],
)
def test_fails_when_the_run_proves_nothing_or_something_else_is_wrong(
    fields: dict[str, Any], problem: str
) -> None:
    assert report(**fields).problems() == [problem]
