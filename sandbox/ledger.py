"""The ledger: every message that really reached the emulated WhatsApp, in order. The judge of duplicates."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

from sandbox.database import Database

# ERROR outranks only what is not yet proven delivered.
RANK = {
    "PENDING": 1, "SERVER_ACK": 2, "SENT": 2, "ERROR": 3, "FAILED": 3,
    "DELIVERY_ACK": 4, "DELIVERED": 4, "READ": 5, "PLAYED": 6,
}  # fmt: skip


class Ledger:
    def __init__(self, database: Database) -> None:
        self._db = database

    def append(
        self,
        *,
        instance: str,
        number: str,
        remote_jid: str,
        key_id: str,
        kind: str,
        text: str,
        body: Any,
        asked_at: float,
    ) -> None:
        """Write one delivered message, before its sender is answered. `asked_at`: when the request came in."""
        content = json.dumps(body, sort_keys=True, ensure_ascii=False)
        digest = hashlib.sha256(f"{kind}\n{content}".encode()).hexdigest()
        self._db.execute(
            "INSERT INTO ledger (instance, number, remote_jid, key_id, kind, text, body, content_hash,"
            " accepted_at, asked_at, status) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'PENDING')",
            instance, number, remote_jid, key_id, kind, text, content, digest, time.time(), asked_at,
        )  # fmt: skip

    def advance(self, *, key_id: str, status: str) -> None:
        """Raise the receipt status an entry has reached; never lowers it."""
        current = self._db.value("SELECT status FROM ledger WHERE key_id = ?", key_id)
        if current and RANK[status] > RANK[current]:
            self._db.execute("UPDATE ledger SET status = ? WHERE key_id = ?", status, key_id)

    def tell(self, *, key_id: str, status: str) -> None:
        """Note that the webhook's receiver took this news of an entry over, by a 2xx."""
        self._db.execute(
            "INSERT OR IGNORE INTO told (key_id, status, at) VALUES (?, ?, ?)", key_id, status, time.time()
        )

    def told(self, *, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        """What receivers took over, with seq > after, oldest first; each piece of news once."""
        rows = self._db.rows("SELECT * FROM told WHERE seq > ? ORDER BY seq LIMIT ?", after, limit)
        return [dict(row) for row in rows]

    def read(self, *, after: int = 0, limit: int = 1000, instance: str | None = None) -> list[dict[str, Any]]:
        """Entries with seq > after, oldest first, of one instance or of all."""
        rows = self._db.rows(
            "SELECT * FROM ledger WHERE seq > ? AND (? IS NULL OR instance = ?) ORDER BY seq LIMIT ?",
            after, instance, instance, limit,
        )  # fmt: skip
        return [{**dict(row), "body": json.loads(row["body"])} for row in rows]

    def count(self, *, instance: str | None = None) -> int:
        """How many messages were delivered, by one instance or by all."""
        total: int = self._db.value(
            "SELECT count(*) FROM ledger WHERE ? IS NULL OR instance = ?", instance, instance
        )
        return total
