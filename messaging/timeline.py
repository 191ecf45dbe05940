"""A message's events as a person reads them: what happened, when, and how long after the request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from messaging.models import FailureCode, MessageEvent, Status

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
}
ACCEPTED = _("Accepted into the queue")
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
            title=str(ACCEPTED if position == 0 else TITLES.get(Status(event.kind), event.kind)),
            note=_note(event),
            at=event.at,
            after=elapsed(event.at - since),
            late=not event.applied,
        )


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
    return " ".join(_sentences(event.detail))


def _sentences(detail: Mapping[str, Any]) -> Iterator[str]:
    if attempt := detail.get("attempt"):
        yield gettext("Attempt %(number)s.") % {"number": attempt}
    if code := detail.get("code"):
        yield str(dict(FailureCode.choices).get(code, code))
    if reason := detail.get("reason") or detail.get("detail"):
        yield str(reason)
