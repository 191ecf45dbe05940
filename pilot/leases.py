"""Work that one process does at a time, for a while: a row says who does it and until when.

A session's advisory lock would have to be held on one connection all the time, and connections come from a pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID, uuid4

from django.db import connection

from pilot.models import Lease

# By the database's clock, which is the same for everybody.
_TAKE = """
INSERT INTO pilot_lease AS known (name, token, until) VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s))
ON CONFLICT (name) DO UPDATE SET token = excluded.token, until = excluded.until
WHERE known.until <= clock_timestamp()
"""


@contextmanager
def lease(name: str, *, lasts: timedelta) -> Iterator[bool]:
    """Gives True to one process at a time, for the length of the block; False to the others, at once.

    It lapses after `lasts`, so that a process which dies with it holds nobody up for longer. Not for what must never
    be done twice at once: a holder that is slower than `lasts` is not stopped.
    """
    token = uuid4()
    ours = _take(name, token, lasts)
    try:
        yield ours
    finally:
        if ours:
            Lease.objects.filter(pk=name, token=token).delete()


def _take(name: str, token: UUID, lasts: timedelta) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, [name, token, lasts.total_seconds()])
        return bool(cursor.rowcount)
