"""An instance's events as a person reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext_lazy as _

from instances.models import InstanceEvent, InstanceStatus

TITLES = {
    InstanceStatus.CREATED: _("Created at the provider"),
    InstanceStatus.CONNECTING: _("Waiting to be connected"),
    InstanceStatus.OPEN: _("Connected"),
    InstanceStatus.DEGRADED: _("Connected, but not delivering"),
    InstanceStatus.CLOSED: _("Disconnected"),
    InstanceStatus.REMOVED: _("Removed"),
    "create_failed": _("Could not be created at the provider"),
    "restarted": _("Restarted"),
    "paused": _("Paused"),
    "resumed": _("Resumed"),
    "hook_repaired": _("Receipts were set up again"),
    "token_renewed": _("Another access token is in use"),
    "template_status": _("Meta decided on a template"),
    "template_quality": _("The quality of a template changed"),
    "template_category": _("Meta changed a template's category"),
    "number_quality": _("The quality of the number changed"),
    "number_name": _("Meta decided on the display name"),
    "account_update": _("Meta changed the business account"),
    "account_alert": _("Meta warns about the account"),
    "capability": _("What the business account may do changed"),
}
REASONS = {
    "logged_out": _("No phone is linked to it."),
    "payment_required": _("WhatsApp asks for a payment."),
    "forbidden": _("WhatsApp has blocked the number."),
    "not_acceptable": _("WhatsApp refused the connection."),
    "pairing_expired": _("Nobody scanned the code in time."),
    "removing": _("It is being removed."),
    "removed_at_provider": _("It was deleted at the provider."),
    "closed": _("It lost its connection to WhatsApp."),
    "connecting": _("It is trying to connect to WhatsApp."),
    "health_check": _("It was not connected, or did not deliver."),
    "unstable": _("Its connection comes and goes."),
    "acks_missing": _("Messages were taken over, but WhatsApp acknowledges none."),
    "unconfirmed": _("Too many sends get no answer."),
    "webhooks_silent": _("It reports nothing any more."),
    "canary_lost": _("A message to itself did not arrive."),
    "rechecked": _("The provider was asked how it is."),
    "provider_unreachable": _("The provider cannot be reached."),
    "no_answer": _("The provider does not answer."),
    "provider_misconfigured": _("The provider refuses us: its address, key or licence is not right."),
    "instance_disconnected": _("It has no connection to WhatsApp."),
    "instance_removed": _("The provider does not have it."),
}
# Where the picture of a status does not say it.
ICONS = {
    "create_failed": "failed",
    "restarted": "connecting",
    "resumed": "open",
    "hook_repaired": "open",
    "token_renewed": "open",
    "account_alert": "alert",
    "account_update": "instances",
    "capability": "instances",
    "number_name": "instances",
    "number_quality": "alert",
    "template_category": "messages",
    "template_quality": "alert",
    "template_status": "messages",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One event: `note` is a sentence or empty."""

    icon: str
    title: str
    note: str
    at: datetime


def lines(events: Iterable[InstanceEvent]) -> Iterator[Line]:
    """The events in their given order."""
    for event in events:
        title = str(TITLES.get(event.kind, event.kind))
        yield Line(
            ICONS.get(event.kind, event.kind), title, sentence(event.detail.get("reason", "")), event.at
        )


def sentence(reason: str) -> str:
    """A stored reason in words; a provider's own reason as it is."""
    return str(REASONS.get(reason, reason))
