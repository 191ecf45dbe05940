"""Looks after instances that do not send: opens the gate of those that are connected again, keeps webhooks set.

Servers that hang must cost little. A run is bounded in time, asks many instances at once, starts with those whose
last check is longest ago, and there is one run of each kind at a time: a second one returns at once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

import structlog
from django.db import DatabaseError, transaction
from django.db.models import F, Q

from instances import hooks, servers, status
from instances.models import Instance, InstanceStatus
from instances.providers import provider_for
from instances.providers.base import INSTANCE_REMOVED, Account, Call, Provider, ProviderError
from instances.providers.http import perform_all
from pilot.leases import lease

T = TypeVar("T")
log = structlog.get_logger(__name__)

# An instance that fails while it says that it is open gets a try this often, and no more.
RECHECK_AFTER = timedelta(seconds=30)
DOUBTFUL = (InstanceStatus.DEGRADED, InstanceStatus.CONNECTING)
GONE = frozenset({"closed", INSTANCE_REMOVED})

BATCH = 100  # instances that are asked at once
CALL_SECONDS = 6.0
BATCH_SECONDS = 2 * CALL_SECONDS  # of two calls, one after the other
RUN_SECONDS = 20.0
LEASE = timedelta(seconds=30)  # longer than a run; a process that dies in one delays the next by so much

UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True)
class _Subject:
    """An instance to be checked, as it was when the check began."""

    instance: Instance
    provider: Provider
    account: Account


Subjects = Mapping[int, _Subject]  # by instance id
Check = Callable[[Subjects, datetime], Mapping[str, int]]  # counts what came of them


def recheck(*, now: datetime) -> dict[str, int]:
    """Asks the provider about instances that have been degraded or connecting for a while. Returns counts."""
    doubtful = Q(status__in=DOUBTFUL, status_changed_at__lte=now - RECHECK_AFTER)
    return _in_batches("state_checked_at", doubtful, _recheck, now)


def keep_hooks(*, now: datetime) -> dict[str, int]:
    """Sets the webhook configuration again where it drifted (Evolution loses it on restarts). Returns counts."""
    servers.take_from_settings()
    present = Q(status__in=[InstanceStatus.OPEN, InstanceStatus.DEGRADED])
    return _in_batches("hook_checked_at", present, _keep_hooks, now)


# --- the state of the connection --------------------------------------------------------------------------


def _recheck(subjects: Subjects, now: datetime) -> Mapping[str, int]:
    states = _states(subjects)
    for key, state in states.items():
        instance = subjects[key].instance
        if state == "open" and instance.status in DOUBTFUL:
            _move(instance, status.OPEN, "rechecked", now)
        if state in GONE and instance.status == InstanceStatus.DEGRADED:
            _move(instance, status.CLOSED, state, now)
    return Counter(states.values())


def _move(instance: Instance, to: str, reason: str, now: datetime) -> None:
    """Unless it is no longer as it was when the provider was asked."""
    status.move(
        instance_id=instance.pk,
        to=to,
        at=now,
        reason=reason,
        only_from=[instance.status],
        unless_changed_after=instance.status_changed_at,
    )


def _states(subjects: Subjects) -> dict[int, str]:
    """The provider's words for the connections; "open" only where a presence update showed that it is alive."""
    states = _ask({key: each.provider.state(each.account) for key, each in subjects.items()})
    said_open = [subjects[key] for key, state in states.items() if state == "open"]
    proofs = _ask({each.instance.pk: each.provider.presence(each.account) for each in said_open})
    dead = {key: proof for key, proof in proofs.items() if isinstance(proof, ProviderError)}
    return {
        key: word.code if isinstance(word, ProviderError) else word for key, word in (states | dead).items()
    }


# --- the webhook ------------------------------------------------------------------------------------------


def _keep_hooks(subjects: Subjects, now: datetime) -> Mapping[str, int]:
    found = _ask({key: each.provider.get_hook(each.account) for key, each in subjects.items()})
    known = {key: hook for key, hook in found.items() if not isinstance(hook, ProviderError)}
    wrong = [key for key, hook in known.items() if not hooks.is_right(subjects[key].instance, hook)]
    repaired = _repair([subjects[key] for key in wrong])
    for key in repaired:
        detail = {"was_set": known[key] is not None}
        status.note(instance_id=key, kind="hook_repaired", at=now, detail=detail)
    kept = len(known) - len(wrong)
    return {"kept": kept, "repaired": len(repaired), "unknown": len(subjects) - kept - len(repaired)}


def _repair(wrong: Iterable[_Subject]) -> list[int]:
    """The ids of those whose webhook could be set."""
    calls = {
        each.instance.pk: each.provider.set_hook(each.account, hooks.config_of(each.instance))
        for each in wrong
    }
    return [key for key, result in _ask(calls).items() if not isinstance(result, ProviderError)]


# --- many at once -----------------------------------------------------------------------------------------


def _in_batches(stamp: str, which: Q, check: Check, now: datetime) -> dict[str, int]:
    """Checks instances until all are, or the time is up. `stamp` is the column with the time of the last check."""
    counts: Counter[str] = Counter()
    with lease(f"instances.{stamp}", lasts=LEASE) as ours:
        ends = time.monotonic() + RUN_SECONDS
        while ours and time.monotonic() + BATCH_SECONDS <= ends:
            taken = _take(stamp, which, now)
            if not taken:
                break
            subjects = {key: subject for key in taken if (subject := _subject(key))}
            counts.update(check(subjects, now))
            counts[UNUSABLE] += len(taken) - len(subjects)
    return {word: count for word, count in counts.items() if count}


def _take(stamp: str, which: Q, now: datetime) -> list[int]:
    """The ids of those to be checked next, marked as checked: one that cannot be does not come before the others."""
    waiting = Instance.objects.filter(which).filter(Q((stamp, None)) | Q((f"{stamp}__lt", now)))
    oldest_first = waiting.order_by(F(stamp).asc(nulls_first=True), "pk")
    with transaction.atomic():
        locked = oldest_first.select_for_update(no_key=True, skip_locked=True)
        ids = list(locked.values_list("pk", flat=True)[:BATCH])
        Instance.objects.filter(pk__in=ids).update(**{stamp: now})
    return ids


def _subject(instance_id: int) -> _Subject | None:
    """None, and a line in the log, for a secret that cannot be read or a provider that is gone."""
    try:
        instance = Instance.objects.select_related("server").get(pk=instance_id)
        return _Subject(instance, provider_for(instance), instance.account())
    except DatabaseError:
        raise
    except Exception:
        log.exception("instance.unusable", instance_id=instance_id)
        return None


def _ask(calls: Mapping[int, Call[T]]) -> dict[int, T | ProviderError]:
    results = perform_all(list(calls.values()), within=CALL_SECONDS)
    return dict(zip(calls, results, strict=True))
