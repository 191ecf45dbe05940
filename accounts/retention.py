"""What of accounts may go: events that every reader has read, sessions that ended, and attempts to sign in."""

from __future__ import annotations

from datetime import datetime

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.contrib.sessions.models import Session
from django.db.models import QuerySet

from accounts.models import Event
from pilot import outbox
from pilot.maintenance import Batches, Step
from pilot.retention import PAGE, pruned


def _read_events() -> QuerySet[Event]:
    return Event.objects.filter(position__lte=outbox.read_by_all(Event))


def end_sessions(now: datetime) -> Batches:
    """Deletes sessions that have expired."""
    while ended := list(Session.objects.filter(expire_date__lt=now).values_list("pk", flat=True)[:PAGE]):
        deleted, _by_model = Session.objects.filter(pk__in=ended).delete()
        yield {"sessions": deleted}


STEPS = (
    Step("sessions", end_sessions),
    *(
        pruned("sign_ins", model.objects.all, at="attempt_time")
        for model in (AccessAttempt, AccessFailureLog, AccessLog)
    ),
    pruned("account_events", _read_events),
)
