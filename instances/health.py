"""Looks for instances that should be open and are not, and keeps webhooks set.

check() is the first of the three phases of the health check: what it finds becomes an outage, and following.py restarts
it, asks again and alerts. recheck() opens the gate of instances that failed and are back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from instances import asking, hooks, outages, servers, status
from instances.asking import Subject, Subjects
from instances.models import Instance, InstanceStatus
from instances.providers.base import (
    DISCONNECTED,
    INSTANCE_REMOVED,
    MISCONFIGURED,
    NO_ANSWER,
    UNREACHABLE,
    ProviderError,
)

# An instance that fails while it says that it is open gets a try this often, and no more.
RECHECK_AFTER = timedelta(seconds=30)
DOUBTFUL = (InstanceStatus.DEGRADED, InstanceStatus.CONNECTING)

# What an instance becomes by the provider's word for its connection.
LOST: Mapping[str, str] = {
    "closed": status.CLOSED,
    "connecting": status.DEGRADED,
    DISCONNECTED: status.DEGRADED,
    INSTANCE_REMOVED: status.CLOSED,
}
GONE = frozenset({"closed", INSTANCE_REMOVED})
# The provider says nothing about the connection. Once is chance; after HEALTHCHECK_SLEEP it is an outage.
SILENT = frozenset({UNREACHABLE, NO_ANSWER, MISCONFIGURED})

CHECK_SECONDS = 300.0  # for all instances
VALIDATE_SECONDS = 120.0


def recheck(*, now: datetime) -> dict[str, int]:
    """Asks the provider about instances that have been degraded or connecting for a while. Returns counts."""
    doubtful = Q(status__in=DOUBTFUL, status_changed_at__lte=now - RECHECK_AFTER)
    return asking.in_batches("state_checked_at", doubtful & ~outages.waits_for_restart(), _recheck, now)


def keep_hooks(*, now: datetime) -> dict[str, int]:
    """Sets the webhook configuration again where it drifted (Evolution loses it on restarts). Returns counts."""
    servers.take_from_settings()
    present = Q(status__in=[*outages.CONNECTED, InstanceStatus.CONNECTING])
    return asking.in_batches("hook_checked_at", present, _keep_hooks, now)


def check(*, now: datetime) -> dict[str, int]:
    """Phase 1: asks for state and presence of every instance that should be open. Returns counts of the answers.

    One that the provider no longer has is closed; one that is not connected is to be restarted at once.
    """
    present = Q(status__in=outages.CONNECTED)
    return asking.in_batches("health_checked_at", present, _check, now, seconds=CHECK_SECONDS)


def validate(*, now: datetime) -> dict[str, int]:
    """The same of instances that we think are open, more often. Returns counts of the answers."""
    claimed = Q(status=InstanceStatus.OPEN)
    return asking.in_batches("validated_at", claimed, _check, now, seconds=VALIDATE_SECONDS)


def suspect(*, instance_id: int, reason: str, evidence: Mapping[str, int], now: datetime) -> bool:
    """Drains an instance that says it is open and does not deliver: its messages wait and lose no attempt.

    It is restarted next (following.py), and those concerned are told at once. False when it is not open any more.
    `reason` is one of outages.SUSPICIONS.
    """
    with transaction.atomic():
        drained = status.move(
            instance_id=instance_id,
            to=status.DEGRADED,
            at=now,
            reason=reason,
            only_from=[status.OPEN],
            detail=evidence,
        )
        if drained:
            outages.alert(outages.suspect(instance_id=instance_id, reason=reason, at=now), now=now)
    return drained


# --- the state of the connection --------------------------------------------------------------------------


def _recheck(subjects: Subjects, now: datetime) -> Mapping[str, int]:
    states = asking.states(subjects)
    for key, state in states.items():
        instance = subjects[key].instance
        if state == "open" and instance.status in DOUBTFUL:
            move(instance, status.OPEN, "rechecked", now)
        if state in GONE and instance.status == InstanceStatus.DEGRADED:
            move(instance, status.CLOSED, state, now)
    return Counter(states.values())


def _check(subjects: Subjects, now: datetime) -> Mapping[str, int]:
    states = asking.states(subjects)
    for key, state in states.items():
        if state in LOST:
            _lose(subjects[key].instance, state, now)
        elif state in SILENT:
            again = now + settings.HEALTHCHECK_SLEEP
            outages.doubt(instance=subjects[key].instance, reason=state, at=now, recheck_at=again)
    return Counter(states.values())


def _lose(instance: Instance, state: str, now: datetime) -> None:
    """Closes the gate, and makes the first restart due now: at this check nobody needs patience any more."""
    to = LOST[state]
    with transaction.atomic():
        if not move(instance, to, state, now) and instance.status == InstanceStatus.DEGRADED:
            outages.lost(instance_id=instance.pk, to=to, reason=state, at=now, was_connected=True)
        outages.hasten(instance_id=instance.pk, at=now)


def move(instance: Instance, to: str, reason: str, now: datetime) -> bool:
    """Moves an instance, unless it is no longer as it was when the provider was asked."""
    return status.move(
        instance_id=instance.pk,
        to=to,
        at=now,
        reason=reason,
        only_from=[instance.status],
        unless_changed_after=instance.status_changed_at,
    )


# --- the webhook ------------------------------------------------------------------------------------------


def _keep_hooks(subjects: Subjects, now: datetime) -> Mapping[str, int]:
    subjects = {key: each for key, each in subjects.items() if each.provider.hook_events}
    found = asking.ask({key: each.provider.get_hook(each.account) for key, each in subjects.items()})
    known = {key: hook for key, hook in found.items() if not isinstance(hook, ProviderError)}
    wrong = [key for key, hook in known.items() if not hooks.is_right(subjects[key].instance, hook)]
    repaired = _repair([subjects[key] for key in wrong])
    for key in repaired:
        detail = {"was_set": known[key] is not None}
        status.note(instance_id=key, kind="hook_repaired", at=now, detail=detail)
    kept = len(known) - len(wrong)
    return {"kept": kept, "repaired": len(repaired), "unknown": len(subjects) - kept - len(repaired)}


def _repair(wrong: Iterable[Subject]) -> list[int]:
    """The ids of those whose webhook could be set."""
    calls = {
        each.instance.pk: each.provider.set_hook(each.account, hooks.config_of(each.instance))
        for each in wrong
    }
    return [key for key, result in asking.ask(calls).items() if not isinstance(result, ProviderError)]
