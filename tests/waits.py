"""Waiting until somebody waits: for tests of what two transactions do to each other."""

from __future__ import annotations

import time

from django.db import connection

_BLOCKED = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid)))"


def until_somebody_waits(*, seconds: float = 10.0) -> None:
    """Returns when another transaction waits for a lock of this one's."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with connection.cursor() as cursor:
            cursor.execute(_BLOCKED)
            if cursor.fetchone()[0]:
                return
    raise AssertionError("nobody waits")
