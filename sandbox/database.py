"""The SQLite file under a sandbox: what must survive a kill -9 of the process."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS ledger (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, instance TEXT NOT NULL, number TEXT NOT NULL,
    remote_jid TEXT NOT NULL, key_id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, text TEXT NOT NULL,
    body TEXT NOT NULL, content_hash TEXT NOT NULL, accepted_at REAL NOT NULL, status TEXT NOT NULL,
    asked_at REAL);
CREATE TABLE IF NOT EXISTS told (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, key_id TEXT NOT NULL, status TEXT NOT NULL, at REAL NOT NULL,
    UNIQUE (key_id, status));
CREATE TABLE IF NOT EXISTS instance (name TEXT PRIMARY KEY, doc TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS message (
    pk INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, instance_id TEXT NOT NULL,
    key_id TEXT NOT NULL, record TEXT NOT NULL, receipts TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS message_key ON message (instance_id, key_id);
CREATE INDEX IF NOT EXISTS message_jid
    ON message (instance_id, json_extract(record, '$.key.remoteJid'));
CREATE TABLE IF NOT EXISTS message_update (
    pk INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, message_id TEXT NOT NULL,
    instance_id TEXT NOT NULL, key_id TEXT NOT NULL, remote_jid TEXT NOT NULL, from_me INTEGER NOT NULL,
    status TEXT NOT NULL, at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS message_update_message ON message_update (message_id);
CREATE INDEX IF NOT EXISTS message_update_key ON message_update (instance_id, key_id);
CREATE TABLE IF NOT EXISTS contact (
    instance_id TEXT NOT NULL, remote_jid TEXT NOT NULL, PRIMARY KEY (instance_id, remote_jid));
CREATE TABLE IF NOT EXISTS number (jid TEXT PRIMARY KEY, doc TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS number_cache (jid TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS graph_object (
    kind TEXT NOT NULL, id TEXT NOT NULL, doc TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (kind, id));
CREATE TABLE IF NOT EXISTS graph_message (
    id TEXT PRIMARY KEY, account TEXT NOT NULL, person TEXT NOT NULL, doc TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS graph_window (
    account TEXT NOT NULL, person TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (account, person));
"""
TABLES = (
    "ledger", "told", "instance", "message", "message_update", "contact", "number", "number_cache",
    "graph_object", "graph_message", "graph_window",
)  # fmt: skip


class Database:
    """One connection, used from the event loop's thread only. Each statement commits by itself
    unless inside `transaction()`."""

    def __init__(self, directory: Path | None) -> None:
        self._connection = sqlite3.connect(_path(directory), isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        # NORMAL survives the death of the process; only a power cut may lose the last commits.
        self._connection.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + SCHEMA)
        self._upgrade()

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        return self._connection.execute(sql, values)

    def rows(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        return self.execute(sql, *values).fetchall()

    def one(self, sql: str, *values: Any) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self.execute(sql, *values).fetchone()
        return row

    def value(self, sql: str, *values: Any) -> Any:
        """The first column of the first row, or None."""
        row = self.one(sql, *values)
        return row[0] if row else None

    def _upgrade(self) -> None:
        """State directories outlive versions of the sandbox: ledgers made before `asked_at` get it."""
        columns = {row["name"] for row in self.rows("PRAGMA table_info(ledger)")}
        if "asked_at" not in columns:
            self.execute("ALTER TABLE ledger ADD COLUMN asked_at REAL")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. The body must not await: another request could write into it."""
        self.execute("BEGIN")
        try:
            yield
        except BaseException:
            self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")

    def wipe(self) -> None:
        with self.transaction():
            for table in TABLES:
                self.execute(f"DELETE FROM {table}")

    def close(self) -> None:
        self._connection.close()


def _path(directory: Path | None) -> str:
    if directory is None:
        return ":memory:"
    directory.mkdir(parents=True, exist_ok=True)
    return str(directory / "sandbox.sqlite3")
