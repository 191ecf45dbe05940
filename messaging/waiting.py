"""Why a message has not gone out yet, in one sentence that a tenant understands."""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from instances.models import Instance, InstanceStatus, Lane
from messaging.models import Message, Status

# Gates that close for more than a moment leave their name on the lane (messaging/claiming.py).
HELD = {
    "breaker": gettext_lazy("The provider's server does not answer; Pilot tries again by itself."),
    "daily_cap": gettext_lazy("The instance has sent all that it may send today."),
}


def explain(message: Message, *, instance: Instance, lane: Lane, now: datetime) -> str:
    """The reason for the wait; empty once the message is on its way or settled. Pure: it reads no rows."""
    if message.status == Status.QUEUED:
        return _why_queued(message, instance, lane, now)
    others = {
        Status.SENDING: _("It is being handed to the provider."),
        Status.UNCONFIRMED: _("The provider did not say whether it went out; Pilot is finding out."),
        Status.SUBMITTED: _("The provider has it; WhatsApp has not confirmed it yet."),
    }
    return others.get(Status(message.status), "")


def _why_queued(message: Message, instance: Instance, lane: Lane, now: datetime) -> str:
    if message.deliver_until <= now:
        return _("Its deadline has passed; it will not be sent.")
    if instance.paused:
        return _("The instance is paused.")
    if instance.status != InstanceStatus.OPEN:
        return _why_not_open(instance)
    if message.next_attempt_at and message.next_attempt_at > now:
        return _why_later(message)
    if lane.held_by in HELD and lane.held_until and lane.held_until > now:
        return str(HELD[lane.held_by])
    if lane.in_flight >= instance.concurrency or lane.next_send_at > now:
        return _why_paced(instance)
    return _("It is next to be sent.")


def _why_not_open(instance: Instance) -> str:
    sentences = {
        InstanceStatus.CREATED: _("The instance was never connected: scan its QR code."),
        InstanceStatus.CONNECTING: _("The instance is connecting."),
        InstanceStatus.DEGRADED: _("The instance is connected but not delivering."),
        InstanceStatus.CLOSED: _("The instance is disconnected."),
        InstanceStatus.REMOVED: _("The instance was removed."),
    }
    return sentences[InstanceStatus(instance.status)]


def _why_later(message: Message) -> str:
    if message.held_by == "pair_rate":
        return _("Too many messages went to this person just now; the provider wants a pause.")
    if message.attempts:
        return _("Attempt %(attempts)s did not go through; it will be tried again shortly.") % {
            "attempts": message.attempts
        }
    return _("It is scheduled for later.")


def _why_paced(instance: Instance) -> str:
    if not instance.pace_most_seconds:
        return _("Waiting for its turn on the instance.")
    return _("Waiting for its turn: the instance sends one message every %(least)g–%(most)g s.") % {
        "least": instance.pace_least_seconds,
        "most": instance.pace_most_seconds,
    }
