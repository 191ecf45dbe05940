"""A message's events as a person reads them: what happened, when, and how long after the request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from instances.models import InstanceStatus
from messaging.models import FailureCode, MessageEvent, Status

HELD = "held"  # not a status: a gate kept the message waiting (messaging/claiming.py)
TITLES = {
    Status.QUEUED: _("Put back in the queue"),
    Status.SENDING: _("Handed to the provider"),
    Status.UNCONFIRMED: _("No answer: it may or may not have gone out"),
    Status.SUBMITTED: _("Taken over by the provider"),
    Status.SENT: _("Acknowledged by WhatsApp"),
    Status.DELIVERED: _("Delivered to the phone"),
    Status.READ: _("Read"),
    Status.PLAYED: _("Played"),
    Status.FAILED: _("Failed"),
    Status.CANCELLED: _("Cancelled"),
    HELD: _("Held back"),
}
ACCEPTED = _("Accepted into the queue")
# The words that events carry in "why", "finding" and "code".
WORDS = {
    **dict(FailureCode.choices),
    "lease_expired": _("The process that was sending it vanished."),
    "instance_down": _("The instance had no connection; this costs no attempt."),
    "echo": _("The phone's own copy of it arrived."),
    "look_up": _("The provider was asked about it."),
    "found": _("It has the message."),
    "purged": _("All that waited on the instance was cancelled."),
    "not_sent": _("The message never went out."),
    "provider_unreachable": _("The provider could not be reached."),
    "throttled": _("The provider asked for a pause."),
    "no_answer": _("The provider did not answer."),
    "ambiguous_answer": _("The provider's answer did not say whether it went out."),
    "provider_misconfigured": _("The provider refuses us: its address, key or licence is not right."),
}
# Why a message is held: the gate's name, or for the gate "instance" its reason.
HOLDS = {
    "paused": _("The instance is paused."),
    InstanceStatus.CREATED: _("The instance was never connected: scan its QR code."),
    InstanceStatus.CONNECTING: _("The instance is connecting."),
    InstanceStatus.DEGRADED: _("The instance is connected but not delivering."),
    InstanceStatus.CLOSED: _("The instance is disconnected."),
    InstanceStatus.REMOVED: _("The instance was removed."),
    "breaker": _("The provider's server does not answer; Pilot tries again by itself."),
    "daily_cap": _("The instance has sent all that it may send today."),
    "pair_rate": _("Too many messages went to this person just now; the provider wants a pause."),
}
LATE = _("This news came late and changed nothing.")


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the timeline. `note` is a sentence or empty; `late` news changed nothing."""

    kind: str
    title: str
    note: str
    at: datetime
    after: str
    late: bool


def steps(events: Iterable[MessageEvent], *, since: datetime) -> Iterator[Step]:
    """The timeline of one message that was accepted at `since`, oldest first."""
    for position, event in enumerate(events):
        yield Step(
            kind=event.kind,
            title=_title(event, first=position == 0),
            note=_note(event),
            at=event.at,
            after=elapsed(event.at - since),
            late=not event.applied,
        )


def _title(event: MessageEvent, *, first: bool) -> str:
    accepted = first and event.kind == Status.QUEUED
    return str(ACCEPTED if accepted else TITLES.get(event.kind, event.kind))


def elapsed(span: timedelta) -> str:
    """A duration in the two units that matter: 0.4 s, 12 s, 2 min 5 s, 1 h 20 min."""
    seconds = max(span.total_seconds(), 0)
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _note(event: MessageEvent) -> str:
    if not event.applied:
        return str(LATE)
    return " ".join(_sentences(event.kind, event.detail))


def _sentences(kind: str, detail: Mapping[str, Any]) -> Iterator[str]:
    if kind == HELD:
        yield from _hold(detail)
        return
    if kind == Status.SENDING and (attempt := detail.get("attempt")):
        yield gettext("Attempt %(number)s.") % {"number": attempt}
    for word in (detail.get("why"), detail.get("finding"), detail.get("code")):
        if word in WORDS:
            yield str(WORDS[word])
    if missing := detail.get("field"):
        yield gettext("Missing: %(field)s.") % {"field": missing}
    if at := detail.get("next_attempt_at"):
        yield gettext("Next attempt at %(time)s.") % {"time": _clock(at)}
    if said := detail.get("reason"):
        yield gettext("The provider says: %(said)s") % {"said": said}


def _hold(detail: Mapping[str, Any]) -> Iterator[str]:
    word = detail["reason"] if detail["gate"] == "instance" else detail["gate"]
    yield str(HOLDS.get(word, word))
    if until := detail.get("until"):
        yield gettext("Until %(time)s.") % {"time": _clock(until)}


def _clock(instant: str) -> str:
    return f"{timezone.localtime(datetime.fromisoformat(instant)):%H:%M:%S}"
