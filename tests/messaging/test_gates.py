"""The gates, one by one: pure, with their numbers."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest

from messaging.gates import WARM_UP, Hold, LaneState, Refusal, allowance, lane_gate, message_gate
from tests.factories import NOW

SOON = NOW + timedelta(seconds=10)
TODAY = NOW.date()


def lane(**fields: Any) -> LaneState:
    free = {
        "status": "open",
        "paused": False,
        "in_flight": 0,
        "concurrency": 1,
        "next_send_at": NOW,
        "next_urgent_at": NOW,
    }
    return LaneState(**free | fields)


@pytest.mark.parametrize(
    ("fields", "hold"),
    [
        ({}, None),
        ({"paused": True}, Hold("instance", "paused")),
        ({"status": "degraded"}, Hold("instance", "degraded")),
        ({"breaker_open_until": SOON}, Hold("breaker", "open", SOON)),
        ({"breaker_open_until": NOW}, None),
        ({"breaker_open_until": NOW, "breaker_probe_until": SOON}, Hold("breaker", "probing", SOON)),
        ({"next_send_at": SOON}, Hold("pace", "paced", SOON)),
        ({"in_flight": 1}, Hold("concurrency", "1 in flight")),
        ({"daily_cap": 5, "sent_on": TODAY, "sent_count": 4}, None),
        ({"daily_cap": 5, "sent_on": TODAY - timedelta(days=1), "sent_count": 5}, None),
        ({"paused": True, "next_send_at": SOON, "in_flight": 1}, Hold("instance", "paused")),
    ],
)
def test_holds_at_the_first_closed_gate(fields: dict[str, Any], hold: Hold | None) -> None:
    assert lane_gate(lane(**fields), now=NOW) == hold


def test_urgent_keeps_the_shorter_of_gap_and_pace() -> None:
    paced = lane(next_send_at=SOON, next_urgent_at=NOW)

    assert lane_gate(paced, now=NOW, urgent=True) is None
    assert lane_gate(lane(next_send_at=NOW, next_urgent_at=SOON), now=NOW, urgent=True) is None


@pytest.mark.parametrize(
    ("deadline", "opted_out", "refusal"),
    [
        (SOON, False, None),
        (NOW, False, Refusal("deadline", "expired")),
        (SOON, True, Refusal("opt_out", "opted_out")),
        (NOW, True, Refusal("deadline", "expired")),
    ],
)
def test_refuses_for_good(deadline: Any, opted_out: bool, refusal: Refusal | None) -> None:
    assert message_gate(deliver_until=deadline, opted_out=opted_out, now=NOW) == refusal


@pytest.mark.parametrize(
    ("cap", "since", "most"),
    [
        (None, None, None),
        (500, None, 500),
        (None, TODAY, WARM_UP[0]),
        (None, TODAY - timedelta(days=2), WARM_UP[2]),
        (50, TODAY - timedelta(days=2), 50),
        (500, TODAY - timedelta(days=30), 500),
        (None, TODAY - timedelta(days=30), None),
        (None, TODAY + timedelta(days=1), WARM_UP[0]),
    ],
)
def test_a_new_number_warms_up_below_its_cap(cap: int | None, since: date | None, most: int | None) -> None:
    assert allowance(daily_cap=cap, warm_up_from=since, today=TODAY) == most
