"""Everything that Pilot alerts about: one closed table with who is told, how urgently, and in which words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Literal

from django.utils.translation import gettext_lazy as _

KindName = Literal[
    "attempts_exhausted",
    "balance_low",
    "beat_not_ticking",
    "consumer_not_consuming",
    "credentials_missing",
    "dead_letter",
    "instance_down",
    "instance_not_delivering",
    "oldest_too_old",
    "queue_too_long",
    "reconciler_found_many",
    "test",
    "webhook_endpoint_disabled",
    "worker_not_consuming",
]


class Severity(Enum):
    """How soon somebody must look; the values are Pushover's priorities."""

    CRITICAL = 1  # messages are late now
    WARNING = 0  # they will be
    NOTICE = -1


class Told(Enum):
    """Who is told: those who run Pilot, the tenant that it is about, or both."""

    OPERATORS = frozenset({"operators"})
    TENANT = frozenset({"tenant"})
    BOTH = frozenset({"operators", "tenant"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What is said of one kind of trouble.

    The sentences may use %(name)s, which is the `name` in the alert's detail or else its subject, and every other
    value of the detail. `of_instance`: the subject is an instance's id. `quiet_after`: it has recovered when it was
    not raised again for so long; None for trouble whose end somebody sees.
    """

    severity: Severity
    told: Told
    title: Any
    sentence: Any
    recovered: Any
    of_instance: bool = False
    quiet_after: timedelta | None = None


HOUR = timedelta(hours=1)

KINDS: Mapping[str, Kind] = {
    "instance_down": Kind(
        severity=Severity.CRITICAL,
        told=Told.BOTH,
        title=_("Instance disconnected"),
        sentence=_("The instance “%(name)s” is disconnected. Its messages wait until it is connected again."),
        recovered=_("The instance “%(name)s” is connected again."),
        of_instance=True,
    ),
    "instance_not_delivering": Kind(
        severity=Severity.CRITICAL,
        told=Told.BOTH,
        title=_("Instance does not deliver"),
        sentence=_("The instance “%(name)s” says that it is connected, but its messages do not arrive."),
        recovered=_("The instance “%(name)s” delivers again."),
        of_instance=True,
    ),
    "attempts_exhausted": Kind(
        severity=Severity.WARNING,
        told=Told.BOTH,
        title=_("Messages failed after the last attempt"),
        sentence=_("%(count)s messages of the instance “%(name)s” failed after their last attempt."),
        recovered=_("For an hour no message of the instance “%(name)s” has failed after its last attempt."),
        of_instance=True,
        quiet_after=HOUR,
    ),
    "queue_too_long": Kind(
        severity=Severity.WARNING,
        told=Told.BOTH,
        title=_("Queue too long"),
        sentence=_("More than %(limit)s messages wait on the instance “%(name)s”."),
        recovered=_("The queue of the instance “%(name)s” is short again."),
        of_instance=True,
    ),
    "oldest_too_old": Kind(
        severity=Severity.WARNING,
        told=Told.BOTH,
        title=_("Messages wait too long"),
        sentence=_("A message has waited on the instance “%(name)s” for more than %(minutes)s minutes."),
        recovered=_("No message waits too long on the instance “%(name)s” any more."),
        of_instance=True,
    ),
    "dead_letter": Kind(
        severity=Severity.WARNING,
        told=Told.OPERATORS,
        title=_("Unusable entry in a stream"),
        sentence=_("An entry of %(name)s could not be used and was set aside: %(reason)s"),
        recovered=_("For an hour no entry of %(name)s has been set aside."),
        quiet_after=HOUR,
    ),
    "reconciler_found_many": Kind(
        severity=Severity.WARNING,
        told=Told.OPERATORS,
        title=_("Reconciling found much"),
        sentence=_(
            "Reconciling (%(name)s) had to put %(count)s messages right; usually there are hardly any."
        ),
        recovered=_("Reconciling (%(name)s) finds nothing unusual any more."),
        quiet_after=2 * HOUR,
    ),
    "credentials_missing": Kind(
        severity=Severity.CRITICAL,
        told=Told.BOTH,
        title=_("Credentials missing"),
        sentence=_("Messages wait because there are no usable credentials for “%(name)s”."),
        recovered=_("Nothing waits for the credentials of “%(name)s” any more."),
        quiet_after=HOUR,
    ),
    "worker_not_consuming": Kind(
        severity=Severity.CRITICAL,
        told=Told.OPERATORS,
        title=_("No worker makes progress"),
        sentence=_("No worker has made progress for %(minutes)s minutes. Nothing is sent."),
        recovered=_("A worker makes progress again."),
    ),
    "consumer_not_consuming": Kind(
        severity=Severity.CRITICAL,
        told=Told.OPERATORS,
        title=_("Consumer makes no progress"),
        sentence=_("The consumer %(name)s has made no progress for %(minutes)s minutes."),
        recovered=_("The consumer %(name)s makes progress again."),
    ),
    "beat_not_ticking": Kind(
        severity=Severity.CRITICAL,
        told=Told.OPERATORS,
        title=_("Beat does not tick"),
        sentence=_("Beat has not ticked for %(minutes)s minutes. What time decides is not done."),
        recovered=_("Beat ticks again."),
    ),
    "webhook_endpoint_disabled": Kind(
        severity=Severity.WARNING,
        told=Told.BOTH,
        title=_("Webhook disabled"),
        sentence=_("Your webhook %(name)s was disabled, because it kept failing."),
        recovered=_("Your webhook %(name)s is enabled again."),
    ),
    "balance_low": Kind(
        severity=Severity.WARNING,
        told=Told.BOTH,
        title=_("Balance low"),
        sentence=_("The balance of “%(name)s” is nearly used up. Messages are refused when there is none."),
        recovered=_("The balance of “%(name)s” is sufficient again."),
    ),
    "test": Kind(
        severity=Severity.NOTICE,
        told=Told.BOTH,
        title=_("Test"),
        sentence=_("This is a test of Pilot's alerts. Nothing is wrong."),
        recovered=_("This is the end of the test of Pilot's alerts."),
    ),
}

# Of a version that knew more.
UNKNOWN = Kind(
    severity=Severity.WARNING,
    told=Told.OPERATORS,
    title=_("Alert"),
    sentence="%(name)s",
    recovered="%(name)s",
)


def kind_of(name: str) -> Kind:
    """What is said of a kind of trouble."""
    return KINDS.get(name, UNKNOWN)
