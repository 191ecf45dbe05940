"""What was sent through the emulated accounts, with the statuses still to come, kept over a kill -9."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from sandbox.database import Database

Due = tuple[str, float]  # a status and when it comes, unix time


@dataclass
class Sent:
    """One message that was taken over. `callback` is the sender's own data, given back in every status."""

    id: str
    account: str
    person: str
    callback: str = ""
    category: str = "service"
    due: list[Due] = field(default_factory=list)
    failure: dict[str, Any] | None = None


class Mailbox:
    def __init__(self, database: Database) -> None:
        self._db = database

    def store(self, sent: Sent) -> None:
        doc = {
            "callback": sent.callback,
            "category": sent.category,
            "due": sent.due,
            "failure": sent.failure,
        }
        sql = "INSERT OR REPLACE INTO graph_message (id, account, person, doc) VALUES (?, ?, ?, ?)"
        self._db.execute(sql, sent.id, sent.account, sent.person, json.dumps(doc))

    def get(self, id_: str) -> Sent | None:
        row = self._db.one("SELECT * FROM graph_message WHERE id = ?", id_)
        return _sent(row) if row else None

    def awaiting(self) -> list[Sent]:
        """Those with statuses still to come."""
        rows = self._db.rows("SELECT * FROM graph_message WHERE json_array_length(doc, '$.due') > 0")
        return [_sent(row) for row in rows]

    # --- when a person last wrote to an account, and what of it was answered

    def heard(self, account: str, person: str, at: float) -> None:
        sql = "INSERT OR REPLACE INTO graph_window (account, person, at) VALUES (?, ?, ?)"
        self._db.execute(sql, account, person, at)

    def last_heard(self, account: str, person: str) -> float | None:
        sql = "SELECT at FROM graph_window WHERE account = ? AND person = ?"
        at: float | None = self._db.value(sql, account, person)
        return at


def _sent(row: Any) -> Sent:
    doc = json.loads(row["doc"])
    due = [(status, at) for status, at in doc.pop("due")]
    return Sent(id=row["id"], account=row["account"], person=row["person"], due=due, **doc)
