"""Cancelling: only what still waits can be called back."""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext as _

from messaging.models import Message, Status
from messaging.status import Move, move
from messaging.waiting import explain
from pilot.errors import PilotError


class NotCancellable(PilotError):
    """The message does not wait any more, so it cannot be called back. `fields["status"]` says where it stands."""

    code = "not_cancellable"
    status = 409


def cancel(message: Message, *, now: datetime, by: str) -> Message:
    """Cancels a queued message, which is then never sent. `by` says in its timeline who did.

    A message that was cancelled before stays so. Raises NotCancellable for any other: a claim may have been faster.
    Returns the message as it is then.
    """
    wanted = Move(
        message_id=message.pk,
        to=Status.CANCELLED,
        at=now,
        only_from=frozenset({Status.QUEUED}),
        detail={"by": by},
    )
    changed = move(wanted).changed
    message.refresh_from_db(fields=["status", "cancelled_at", "attempts", "next_attempt_at"])
    if not changed and message.status != Status.CANCELLED:
        raise NotCancellable(_why_not(message, now), fields={"status": [message.status]})
    return message


def _why_not(message: Message, now: datetime) -> str:
    instance = message.instance
    said = explain(message, instance=instance, lane=instance.lane, now=now)
    return said or _("It is %(status)s already.") % {"status": Status(message.status).label}
