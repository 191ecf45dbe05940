"""Asks providers about many instances at once, in bounded time, so that servers that hang cost little.

A run starts with those whose last check is longest ago, and there is one run of each kind at a time: a second one
returns at once.
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

from instances.models import Instance
from instances.providers import provider_for
from instances.providers.base import Account, Call, Provider, ProviderError
from instances.providers.http import perform_all
from pilot.leases import lease

T = TypeVar("T")
log = structlog.get_logger(__name__)

BATCH = 100  # instances that are asked at once
CALL_SECONDS = 6.0
BATCH_SECONDS = 2 * CALL_SECONDS  # of two calls, one after the other
RUN_SECONDS = 20.0
# How much longer than a run its lease lasts; a process that dies in one delays the next by so much.
SPARE = timedelta(seconds=10)

UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True)
class Subject:
    """An instance to be checked, as it was when the check began."""

    instance: Instance
    provider: Provider
    account: Account


Subjects = Mapping[int, Subject]  # by instance id
Check = Callable[[Subjects, datetime], Mapping[str, int]]  # counts what came of them


def in_batches(
    stamp: str, which: Q, check: Check, now: datetime, *, seconds: float | None = None
) -> dict[str, int]:
    """Checks instances until all are, or the time is up. `stamp` is the column with the time of the last check.

    Returns the counts of all batches, without zeros; nothing when another process is at it.
    """
    seconds = RUN_SECONDS if seconds is None else seconds
    counts: Counter[str] = Counter()
    with lease(f"instances.{stamp}", lasts=timedelta(seconds=seconds) + SPARE) as ours:
        ends = time.monotonic() + seconds
        while ours and time.monotonic() + BATCH_SECONDS <= ends:
            taken = _take(stamp, which, now)
            if not taken:
                break
            found = subjects(taken)
            counts.update(check(found, now))
            counts[UNUSABLE] += len(taken) - len(found)
    return {word: count for word, count in counts.items() if count}


def subjects(instance_ids: Iterable[int]) -> Subjects:
    """Those that can be asked about, by id."""
    return {key: subject for key in instance_ids if (subject := _subject(key))}


def ask(calls: Mapping[int, Call[T]]) -> dict[int, T | ProviderError]:
    """What each call gave or raised, all made at once."""
    results = perform_all(list(calls.values()), within=CALL_SECONDS)
    return dict(zip(calls, results, strict=True))


def states(subjects: Subjects) -> dict[int, str]:
    """The provider's words for the connections: open, connecting, closed, or the code of the error.

    "open" only where a presence update showed that the socket is alive.
    """
    said = ask({key: each.provider.state(each.account) for key, each in subjects.items()})
    said_open = [subjects[key] for key, state in said.items() if state == "open"]
    proofs = ask({each.instance.pk: each.provider.presence(each.account) for each in said_open})
    dead = {key: proof for key, proof in proofs.items() if isinstance(proof, ProviderError)}
    return {
        key: word.code if isinstance(word, ProviderError) else word for key, word in (said | dead).items()
    }


def _take(stamp: str, which: Q, now: datetime) -> list[int]:
    """The ids of those to be checked next, marked as checked: one that cannot be does not come before the others."""
    waiting = Instance.objects.filter(which).filter(Q((stamp, None)) | Q((f"{stamp}__lt", now)))
    oldest_first = waiting.order_by(F(stamp).asc(nulls_first=True), "pk")
    with transaction.atomic():
        locked = oldest_first.select_for_update(no_key=True, skip_locked=True)
        ids = list(locked.values_list("pk", flat=True)[:BATCH])
        Instance.objects.filter(pk__in=ids).update(**{stamp: now})
    return ids


def _subject(instance_id: int) -> Subject | None:
    """None, and a line in the log, for a secret that cannot be read or a provider that is gone."""
    try:
        instance = Instance.objects.select_related("server").get(pk=instance_id)
        return Subject(instance, provider_for(instance), instance.account())
    except DatabaseError:
        raise
    except Exception:
        log.exception("instance.unusable", instance_id=instance_id)
        return None
