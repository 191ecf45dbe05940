"""One leader among several processes, by a PostgreSQL advisory lock on a connection of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg
from django.conf import settings


class Leadership:
    """Holds the advisory lock `key` while its connection lives. Use from one thread.

    The server ends the session of a leader from which it hears nothing for `hangs_seconds`; else one that hangs would
    lead for ever.
    """

    def __init__(self, key: int, *, hangs_seconds: int = 15) -> None:
        self._key = key
        self._hangs_seconds = hangs_seconds
        self._connection: psycopg.Connection | None = None

    def hold(self) -> bool:
        """Takes the lead, or proves that it is still ours. False while somebody else leads.

        Raises psycopg.Error when the database is away; then the lead must be taken for lost.
        """
        try:
            if self._connection is None:
                self._connection = _connect(hangs_seconds=self._hangs_seconds)
            row = self._connection.execute(
                "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
                " AND objid = %s AND granted) OR pg_try_advisory_lock(%s)",
                [self._key, self._key],
            ).fetchone()
        except psycopg.Error:
            self.release()
            raise
        return bool(row and row[0])

    def execute(self, statement: LiteralString, values: Sequence[Any] = ()) -> psycopg.Cursor:
        """Runs a small statement on the leader's connection: it fails when the lead is lost."""
        assert self._connection is not None
        return self._connection.execute(statement, values)

    def release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _connect(*, hangs_seconds: int) -> psycopg.Connection:
    return psycopg.connect(
        settings.DATABASE_URL,
        autocommit=True,
        connect_timeout=5,
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
        tcp_user_timeout=10_000,
        options=f"-c idle_session_timeout={hangs_seconds}s",
    )
