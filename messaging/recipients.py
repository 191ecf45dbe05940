"""The gates of the person, for providers that have them: the 24-hour window, and the rate to one person."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from messaging import rates, windows
from messaging.gates import Refusal
from messaging.models import FailureCode
from messaging.windows import State
from pilot import sql

Key = tuple[int, str]  # instance and address


def window_gate(*, open_until: datetime | None, now: datetime) -> Refusal | None:
    """Refuses what may only be said while a window is open that has closed; `open_until` is None for all else."""
    if open_until is None or now < open_until:
        return None
    return Refusal("window", FailureCode.WINDOW_CLOSED)


@dataclass(slots=True)
class Recipients:
    """What is on record of the people that one claim is about, and what the claim itself uses up."""

    now: datetime
    _states: dict[Key, State] = field(default_factory=dict)
    _full: dict[Key, datetime] = field(default_factory=dict)

    def look_up(self, people: Collection[tuple[int, str]]) -> None:
        """Reads what is on record, with one statement for all (instance, to) that are not known yet."""
        missing = {(instance_id, windows.address_of(to)) for instance_id, to in people} - self._states.keys()
        self._states |= dict.fromkeys(missing, windows.UNKNOWN) | windows.states_of(missing)

    def state(self, instance_id: int, to: str) -> State:
        """What was looked up of a person."""
        return self._states[instance_id, windows.address_of(to)]

    def held_until(self, instance_id: int, to: str) -> datetime | None:
        """None when the rate to this person lets a message through, else when it will."""
        key = (instance_id, windows.address_of(to))
        return rates.held_until(self._full.get(key, self._states[key].full_at), now=self.now)

    def use_up(self, instance_id: int, to: str) -> None:
        """Counts a message to this person."""
        key = (instance_id, windows.address_of(to))
        full_at = self._full.get(key, self._states[key].full_at)
        self._full[key] = rates.full_after(full_at, now=self.now)

    def write(self) -> None:
        """Writes down what was used up."""
        windows.note_sent(self._full)


# --- answers to comments ----------------------------------------------------------------------------------

ANSWERED_WITHIN = timedelta(days=7)

_CLAIM = """
INSERT INTO messaging_commentanswer AS known (instance_id, comment_id, message_id, at) VALUES (%s, %s, %s, %s)
ON CONFLICT (instance_id, comment_id) DO UPDATE SET at = known.at
RETURNING message_id
"""
_COMMENTED = "SELECT at FROM messaging_receivedmessage WHERE instance_id = %s AND provider_message_id = %s"


def comment_gate(
    *, instance_id: int, message_id: str, content: Mapping[str, Any], now: datetime
) -> Refusal | None:
    """Refuses a second private answer to a comment, and one that comes after seven days. To be called under the
    instance's lane; the first message that passes is the one that may try again."""
    comment = content.get("comment")
    if not isinstance(comment, dict) or comment.get("mode") != "private":
        return None
    commented = sql.fetch(_COMMENTED, [instance_id, comment["id"]])
    if commented and now >= commented[0][0] + ANSWERED_WITHIN - settings.WINDOW_MARGIN:
        return Refusal("comment", FailureCode.WINDOW_CLOSED)
    if sql.fetch(_CLAIM, [instance_id, comment["id"], message_id, now])[0][0] != message_id:
        return Refusal("comment", FailureCode.COMMENT_ANSWERED)
    return None
