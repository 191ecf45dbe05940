"""Work that one process does at a time, for a while: a row says who does it and until when.

A session's advisory lock would have to be held on one connection all the time, and connections come from a pool.
"""

from __future__ import annotations

import time
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
# Also when it has lapsed: as long as nobody else took it, nobody else is at it.
_KEEP = "UPDATE pilot_lease SET until = clock_timestamp() + make_interval(secs => %s) WHERE name = %s AND token = %s"


class Tenure:
    """A lease as whoever asked for it sees it: true for the holder, false for the others."""

    def __init__(self, name: str, lasts: timedelta) -> None:
        self._name, self._lasts, self._token = name, lasts.total_seconds(), uuid4()
        self._ours = bool(_run(_TAKE, name, self._token, self._lasts))
        self._kept_at = time.monotonic()

    def __bool__(self) -> bool:
        return self._ours

    def keep(self) -> bool:
        """Puts the end off, to be called between pieces of work. False once somebody else has the lease: stop then.

        Asks the database only when a quarter of the time has passed.
        """
        if self._ours and time.monotonic() - self._kept_at >= self._lasts / 4:
            self._kept_at = time.monotonic()
            self._ours = bool(_run(_KEEP, self._lasts, self._name, self._token))
        return self._ours

    def end(self) -> None:
        """Lets the next one have it at once."""
        if self._ours:
            Lease.objects.filter(pk=self._name, token=self._token).delete()


@contextmanager
def lease(name: str, *, lasts: timedelta) -> Iterator[Tenure]:
    """Gives a true Tenure to one process at a time, for the length of the block; a false one to the others, at once.

    It lapses after `lasts` unless it is kept, so that a process which dies with it holds nobody up for longer. Not for
    what must never be done twice at once: a holder that is slower than `lasts` is not stopped.
    """
    tenure = Tenure(name, lasts)
    try:
        yield tenure
    finally:
        tenure.end()


def _run(statement: str, *values: str | float | UUID) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.rowcount
