"""The circuit breaker of a provider's endpoint: opens after failures in a row, half-opens with one probe.

Only failures of the endpoint count (it cannot be reached, it does not answer), not those of one instance or message.
Any answer closes the breaker. All processes see the same rows; the happy path costs one statement that finds nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Q

from instances.models import Breaker
from instances.providers.base import AMBIGUOUS, NO_ANSWER, UNREACHABLE

OPENS_AFTER = 5
SHORTEST_OPEN = timedelta(seconds=15)
LONGEST_OPEN = timedelta(minutes=5)
# Longer than any call, so that a probe whose process died is replaced and one that lives is not.
PROBE = timedelta(seconds=60)

ENDPOINT_FAILURES = frozenset({UNREACHABLE, NO_ANSWER, AMBIGUOUS})

# Opens for 15 s, doubled with every further failure, five minutes at most.
_FAIL = """
UPDATE instances_breaker SET failures = least(now_failed, 1000), probe_until = NULL,
    open_until = CASE WHEN now_failed >= %(threshold)s THEN %(now)s + interval '1 second' * least(
        %(shortest)s * power(2, least(now_failed - %(threshold)s, 10)), %(longest)s) END
FROM (SELECT b.server_id AS id, b.failures + f.count AS now_failed
      FROM unnest(%(ids)s::bigint[], %(counts)s::int[]) AS f (server_id, count)
      JOIN instances_breaker b USING (server_id) ORDER BY b.server_id FOR UPDATE OF b) AS counted
WHERE server_id = counted.id
"""


def take_probe(server_id: int, *, now: datetime) -> bool:
    """Takes the one probe of a half-open breaker. False when somebody else has it."""
    free = Q(probe_until=None) | Q(probe_until__lte=now)
    half_open = Breaker.objects.filter(free, pk=server_id, open_until__lte=now)
    return half_open.update(probe_until=now + PROBE) == 1


def give_back_probe(server_id: int) -> None:
    """The probe was taken, but there was nothing to send with it."""
    Breaker.objects.filter(pk=server_id).update(probe_until=None)


def note(*, answered: Collection[int], failed: Iterable[int], now: datetime) -> None:
    """Takes in what calls showed: server ids that answered, and one id for each failure of an endpoint.

    An endpoint that did both in one batch answered.
    """
    troubled = Q(failures__gt=0) | Q(open_until__isnull=False)
    if answered:
        closed = {"failures": 0, "open_until": None, "probe_until": None}
        Breaker.objects.filter(troubled, pk__in=answered).update(**closed)
    counts: dict[int, int] = {}
    for server_id in failed:
        if server_id not in answered:
            counts[server_id] = counts.get(server_id, 0) + 1
    if counts:
        _fail(counts, now)


def _fail(counts: dict[int, int], now: datetime) -> None:
    Breaker.objects.bulk_create([Breaker(server_id=key) for key in sorted(counts)], ignore_conflicts=True)
    with connection.cursor() as cursor:
        cursor.execute(
            _FAIL,
            {
                "ids": list(counts),
                "counts": list(counts.values()),
                "threshold": OPENS_AFTER,
                "shortest": SHORTEST_OPEN.total_seconds(),
                "longest": LONGEST_OPEN.total_seconds(),
                "now": now,
            },
        )
