"""The circuit breaker of a provider's endpoint: opens after failures in a row, half-opens with one probe.

What counts is whether the endpoint can be reached and answers. An answer, even a bad one, closes the breaker. That it
does not answer one instance may be that instance's trouble, so silence counts once for each instance that meets it; a
refused connection counts always. All processes see the same rows, and the happy path costs one look that finds nothing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import Q

from instances.models import Breaker
from instances.providers.base import AMBIGUOUS, NO_ANSWER, UNREACHABLE
from pilot import sql

OPENS_AFTER = 5
SHORTEST_OPEN = timedelta(seconds=15)
LONGEST_OPEN = timedelta(minutes=5)
# Longer than any call, so that a probe whose process died is replaced and one that lives is not.
PROBE = timedelta(seconds=60)
REMEMBERED_SECONDS = 1.0

FAILURES = frozenset({UNREACHABLE, NO_ANSWER})
# Neither an answer nor a failure of the endpoint: a gateway's word, one instance's time-out, a bug of ours.
PROVES_NOTHING = frozenset({AMBIGUOUS, "internal"})


class Failure(NamedTuple):
    """One call that the endpoint did not answer."""

    server_id: int
    instance_id: int
    code: str


def is_failure(code: str) -> bool:
    """Whether a ProviderError's code says that the endpoint failed."""
    return code in FAILURES


def is_answer(code: str) -> bool:
    """Whether a ProviderError's code says that the endpoint works, whatever it answered."""
    return code not in FAILURES | PROVES_NOTHING


def take_probe(server_id: int, *, now: datetime) -> bool:
    """Takes the one probe of a half-open breaker. False when somebody else has it.

    Whoever takes several does so in the order of their server ids, so that two cannot deadlock.
    """
    free = Q(probe_until=None) | Q(probe_until__lte=now)
    half_open = Breaker.objects.filter(free, pk=server_id, open_until__lte=now)
    return half_open.update(probe_until=now + PROBE) == 1


def give_back_probe(server_id: int) -> None:
    """The probe was taken, but there was nothing to send with it."""
    Breaker.objects.filter(pk=server_id).update(probe_until=None)


def open_until(server_id: int | None) -> datetime | None:
    """Until when the breaker is open, as it was at most a second ago. For forecasts and screens."""
    until, value = _remembered.get(server_id, (0.0, None))
    if server_id is None or time.monotonic() < until:
        return value
    value = Breaker.objects.filter(pk=server_id).values_list("open_until", flat=True).first()
    _remembered[server_id] = (time.monotonic() + REMEMBERED_SECONDS, value)
    return value


def forget() -> None:
    """Empties the memory of open_until(), for tests."""
    _remembered.clear()


_remembered: dict[int | None, tuple[float, datetime | None]] = {}


def note(*, answered: Collection[int], failures: Sequence[Failure], now: datetime) -> None:
    """Takes in what calls showed. A server that did both in one batch answered."""
    if answered:
        _close(answered)
    silent = [failure for failure in failures if failure.server_id not in answered]
    if silent:
        _count(silent, now)


_TROUBLED = """
SELECT server_id FROM instances_breaker WHERE server_id = ANY(%s) AND (failures > 0 OR open_until IS NOT NULL)
"""


def _close(server_ids: Collection[int]) -> None:
    troubled = [row[0] for row in sql.fetch(_TROUBLED, [list(server_ids)])]
    if not troubled:
        return
    with transaction.atomic():
        breakers = Breaker.objects.select_for_update().filter(pk__in=troubled).order_by("pk")
        closed = {"failures": 0, "open_until": None, "probe_until": None, "last_silent": None}
        Breaker.objects.filter(pk__in=[breaker.pk for breaker in breakers]).update(**closed)


def _count(failures: Sequence[Failure], now: datetime) -> None:
    server_ids = sorted({failure.server_id for failure in failures})
    Breaker.objects.bulk_create([Breaker(server_id=key) for key in server_ids], ignore_conflicts=True)
    with transaction.atomic():
        for breaker in Breaker.objects.select_for_update().filter(pk__in=server_ids).order_by("pk"):
            if breaker.open_until is not None and now < breaker.open_until:
                continue  # calls that were under way when it opened say nothing new
            _take_in(breaker, [failure for failure in failures if failure.server_id == breaker.pk])
            breaker.open_until = _until(breaker.failures, now)
            breaker.probe_until = None
            breaker.save(update_fields=["failures", "open_until", "probe_until", "last_silent"])


def _take_in(breaker: Breaker, failures: Sequence[Failure]) -> None:
    """Closed, it counts up to the threshold, however many calls fail together; half-open, one probe failed."""
    if breaker.open_until is not None:
        breaker.failures += 1
        return
    for failure in failures:
        silence = failure.code == NO_ANSWER
        if silence and breaker.last_silent == failure.instance_id:
            continue
        breaker.failures = min(breaker.failures + 1, OPENS_AFTER)
        breaker.last_silent = failure.instance_id if silence else None


def _until(failures: int, now: datetime) -> datetime | None:
    """15 s from the fifth failure in a row on, doubled with every probe that fails, five minutes at most."""
    beyond = failures - OPENS_AFTER
    return now + min(SHORTEST_OPEN * 2 ** min(beyond, 10), LONGEST_OPEN) if beyond >= 0 else None
