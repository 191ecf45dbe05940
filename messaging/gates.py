"""What a message must pass before it is handed to a provider: pure functions over plain numbers.

A gate passes (None), holds (come back at `until`, or when something changes) or refuses (the message fails). In order:

    deadline · opt-out        the message's own; refuse
    instance open · breaker · daily cap and warm-up · pace · concurrency        the lane's; hold
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from accounts.models import zone_of
from messaging.models import FailureCode

# What a new number may send on its first days: bans come after small volumes (Evolution's public issues 1870, 2298).
WARM_UP = (20, 40, 80, 160, 320, 640, 1000)


@dataclass(frozen=True, slots=True)
class Hold:
    """Not now. `until` is None when only an event can open the gate."""

    gate: str
    reason: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Never. `code` is a FailureCode."""

    gate: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneState:
    """An instance as the gates see it, under its lane's lock."""

    status: str
    paused: bool
    in_flight: int
    concurrency: int
    next_send_at: datetime
    next_urgent_at: datetime
    daily_cap: int | None = None
    warm_up_from: date | None = None
    sent_on: date | None = None
    sent_count: int = 0
    time_zone: str = "UTC"
    breaker_open_until: datetime | None = None
    breaker_probe_until: datetime | None = None


def message_gate(*, deliver_until: datetime, opted_out: bool, now: datetime) -> Refusal | None:
    """The gates of the message, in order: deadline · opt-out."""
    if now >= deliver_until:
        return Refusal("deadline", FailureCode.EXPIRED)
    if opted_out:
        return Refusal("opt_out", FailureCode.OPTED_OUT)
    return None


def lane_gate(lane: LaneState, *, now: datetime, urgent: bool = False) -> Hold | None:
    """The gates of the instance, in order. An urgent message keeps the short gap instead of the pace."""
    return (
        _instance(lane) or _breaker(lane, now) or _day(lane, now) or _pace(lane, now, urgent) or _slots(lane)
    )


def _instance(lane: LaneState) -> Hold | None:
    if lane.paused:
        return Hold("instance", "paused")
    if lane.status != "open":
        return Hold("instance", lane.status)
    return None


def _breaker(lane: LaneState, now: datetime) -> Hold | None:
    """Open: nobody passes. Half-open: whoever takes the probe passes (instances/breaking.py)."""
    if lane.breaker_open_until is None:
        return None
    if now < lane.breaker_open_until:
        return Hold("breaker", "open", until=lane.breaker_open_until)
    if lane.breaker_probe_until and now < lane.breaker_probe_until:
        return Hold("breaker", "probing", until=lane.breaker_probe_until)
    return None


def _day(lane: LaneState, now: datetime) -> Hold | None:
    today = now.astimezone(zone_of(lane.time_zone)).date()
    most = allowance(daily_cap=lane.daily_cap, warm_up_from=lane.warm_up_from, today=today)
    if most is None or lane.sent_on != today or lane.sent_count < most:
        return None
    return Hold(
        "daily_cap", f"{lane.sent_count} of {most} today", until=_midnight_after(today, lane.time_zone)
    )


def allowance(*, daily_cap: int | None, warm_up_from: date | None, today: date) -> int | None:
    """The most an instance may send today, or None for no bound: its cap, lower on the first days of a new number."""
    day = (today - warm_up_from).days if warm_up_from else len(WARM_UP)
    ramp = WARM_UP[max(day, 0)] if day < len(WARM_UP) else None
    return min((bound for bound in (daily_cap, ramp) if bound is not None), default=None)


def _midnight_after(today: date, time_zone: str) -> datetime:
    return datetime.combine(today + timedelta(days=1), time(), tzinfo=zone_of(time_zone))


def _pace(lane: LaneState, now: datetime, urgent: bool) -> Hold | None:
    at = min(lane.next_urgent_at, lane.next_send_at) if urgent else lane.next_send_at
    return Hold("pace", "paced", until=at) if at > now else None


def _slots(lane: LaneState) -> Hold | None:
    if lane.in_flight >= lane.concurrency:
        return Hold("concurrency", f"{lane.in_flight} in flight")
    return None
