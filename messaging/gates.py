"""What a message must pass before it is handed to a provider: pure functions over plain numbers.

A gate passes (None), holds (come back at `until`, or when something changes) or refuses (the message fails).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from messaging.models import FailureCode


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


@dataclass(frozen=True, slots=True)
class LaneState:
    """An instance as the gates see it, under its lane's lock."""

    status: str
    paused: bool
    in_flight: int
    concurrency: int
    next_send_at: datetime


def lane_gate(lane: LaneState, *, now: datetime) -> Hold | None:
    """The gates of the instance, in order: open · pace · concurrency."""
    if lane.paused:
        return Hold("instance", "paused")
    if lane.status != "open":
        return Hold("instance", lane.status)
    if lane.next_send_at > now:
        return Hold("pace", "paced", until=lane.next_send_at)
    if lane.in_flight >= lane.concurrency:
        return Hold("concurrency", f"{lane.in_flight} in flight")
    return None


def message_gate(*, deliver_until: datetime, opted_out: bool, now: datetime) -> Refusal | None:
    """The gates of the message, in order: deadline · opt-out."""
    if now >= deliver_until:
        return Refusal("deadline", FailureCode.EXPIRED)
    if opted_out:
        return Refusal("opt_out", FailureCode.OPTED_OUT)
    return None
