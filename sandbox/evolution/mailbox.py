"""The messages and receipts an Evolution server has stored, and how its look-ups see them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sandbox.database import Database
from sandbox.evolution.formats import cuid

RECORD_FIELDS = (
    "key", "pushName", "messageType", "message", "messageTimestamp", "instanceId", "source", "contextInfo",
)  # fmt: skip

# Filter in `where` -> the SQL value it is compared with. `fromMe` is apart: false does not filter.
MESSAGE_FILTERS = {
    ("key", "id"): "key_id",
    ("key", "remoteJid"): "json_extract(record, '$.key.remoteJid')",
    ("key", "remoteJidAlt"): "json_extract(record, '$.key.remoteJidAlt')",
    ("key", "participant"): "json_extract(record, '$.key.participant')",
    ("id",): "id",
    ("messageType",): "json_extract(record, '$.messageType')",
    ("source",): "json_extract(record, '$.source')",
}
FROM_ME = "json_extract(record, '$.key.fromMe')"
SENT_AT = "json_extract(record, '$.messageTimestamp')"
UPDATE_FILTERS = {"id": "key_id", "remoteJid": "remote_jid", "fromMe": "from_me"}

Receipt = tuple[str, float]


@dataclass(frozen=True)
class Message:
    """A stored message. `receipts`: the (status, due unix time) pairs WhatsApp is still to send for it;
    `address`: how WhatsApp calls the recipient in them."""

    id: str
    instance_id: str
    key_id: str
    address: str
    from_me: bool
    receipts: tuple[Receipt, ...] = ()


class Mailbox:
    def __init__(self, database: Database) -> None:
        self._db = database

    def store(
        self,
        record: dict[str, Any],
        *,
        instance_id: str,
        address: str = "",
        receipts: tuple[Receipt, ...] = (),
    ) -> Message:
        """Keep a sent or received message as its webhook shows it."""
        kept = {name: record.get(name) for name in RECORD_FIELDS}
        key = record["key"]
        message = Message(
            id=cuid(),
            instance_id=instance_id,
            key_id=key["id"],
            address=address or key["remoteJid"],
            from_me=key["fromMe"],
            receipts=receipts,
        )
        schedule = json.dumps({"address": message.address, "due": receipts})
        self._db.execute(
            "INSERT INTO message (id, instance_id, key_id, record, receipts) VALUES (?, ?, ?, ?, ?)",
            message.id, instance_id, message.key_id, json.dumps(kept), schedule,
        )  # fmt: skip
        return message

    def add_update(self, message: Message, status: str) -> bool:
        """Keep a receipt. False when it is dropped: the message is gone, or the same status came within
        the same second."""
        if not self._db.one("SELECT 1 FROM message WHERE id = ?", message.id):
            return False
        last = self._db.one(
            "SELECT status, at FROM message_update WHERE message_id = ? ORDER BY pk DESC", message.id
        )
        now = time.time()
        if last and last["status"] == status and int(last["at"]) == int(now):
            return False
        self._db.execute(
            "INSERT INTO message_update"
            " (id, message_id, instance_id, key_id, remote_jid, from_me, status, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            cuid(), message.id, message.instance_id, message.key_id, message.address, message.from_me,
            status, now,
        )  # fmt: skip
        return True

    def awaiting_receipts(self) -> list[Message]:
        """Messages whose receipts had not all come when the process died, with those still due."""
        rows = self._db.rows(
            "SELECT * FROM message WHERE json_array_length(receipts, '$.due') >"
            " (SELECT count(*) FROM message_update WHERE message_id = message.id)"
        )
        return [self._unfinished(row) for row in rows]

    def _unfinished(self, row: Any) -> Message:
        had = {
            r["status"]
            for r in self._db.rows("SELECT status FROM message_update WHERE message_id = ?", row["id"])
        }
        schedule = json.loads(row["receipts"])
        due = tuple((status, at) for status, at in schedule["due"] if status not in had)
        return Message(
            id=row["id"],
            instance_id=row["instance_id"],
            key_id=row["key_id"],
            address=schedule["address"],
            from_me=True,
            receipts=due,
        )

    def find(self, instance_id: str, where: dict[str, Any], *, page: int, size: int) -> dict[str, Any]:
        """findMessages: newest first, counted in full."""
        clause, values = _message_clause(instance_id, where)
        total: int = self._db.value(f"SELECT count(*) FROM message WHERE {clause}", *values)
        rows = self._db.rows(
            f"SELECT * FROM message WHERE {clause} ORDER BY {SENT_AT} DESC, pk DESC LIMIT ? OFFSET ?",
            *values, size, (page - 1) * size,
        )  # fmt: skip
        records = [self._record(row) for row in rows]
        return {"total": total, "pages": -(-total // size), "currentPage": page, "records": records}

    def _record(self, row: Any) -> dict[str, Any]:
        updates = self._db.rows(
            "SELECT status FROM message_update WHERE message_id = ? ORDER BY pk", row["id"]
        )
        statuses = [{"status": update["status"]} for update in updates]
        return {"id": row["id"], **json.loads(row["record"]), "MessageUpdate": statuses}

    def find_updates(
        self, instance_id: str, where: dict[str, Any], *, page: int, size: int
    ) -> list[dict[str, Any]]:
        """findStatusMessage: `where.status` is not applied."""
        filters = {sql: where[name] for name, sql in UPDATE_FILTERS.items() if where.get(name)}
        clause = " AND ".join(["instance_id = ?", *(f"{sql} = ?" for sql in filters)])
        rows = self._db.rows(
            f"SELECT * FROM message_update WHERE {clause} ORDER BY pk LIMIT ? OFFSET ?",
            instance_id, *filters.values(), size, (page - 1) * size,
        )  # fmt: skip
        return [_update(row) for row in rows]

    def meet(self, instance_id: str, remote_jid: str) -> bool:
        """Keep a contact; True when it is new."""
        cursor = self._db.execute("INSERT OR IGNORE INTO contact VALUES (?, ?)", instance_id, remote_jid)
        return cursor.rowcount == 1

    def counts(self, instance_id: str) -> dict[str, int]:
        count = "SELECT count(*) FROM {} WHERE instance_id = ?"
        messages = self._db.value(count.format("message"), instance_id)
        contacts = self._db.value(count.format("contact"), instance_id)
        return {"Message": messages, "Contact": contacts, "Chat": 0}


def _message_clause(instance_id: str, where: dict[str, Any]) -> tuple[str, list[Any]]:
    clauses: list[str] = ["instance_id = ?"]
    values: list[Any] = [instance_id]
    for path, sql in MESSAGE_FILTERS.items():
        if (wanted := _dig(where, path)) is not None:
            clauses.append(f"{sql} = ?")
            values.append(wanted)
    if _dig(where, ("key", "fromMe")):
        clauses.append(FROM_ME)
    span = where.get("messageTimestamp") or {}
    if "gte" in span and "lte" in span:
        clauses.append(f"{SENT_AT} BETWEEN ? AND ?")
        values += [_unix(span["gte"]), _unix(span["lte"])]
    return " AND ".join(clauses), values


def _dig(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def _unix(iso: str) -> int:
    return int(datetime.fromisoformat(iso).timestamp())


def _update(row: Any) -> dict[str, Any]:
    return {
        "id": row["id"],
        "keyId": row["key_id"],
        "remoteJid": row["remote_jid"],
        "fromMe": bool(row["from_me"]),
        "participant": None,
        "pollUpdates": None,
        "status": row["status"],
        "messageId": row["message_id"],
        "instanceId": row["instance_id"],
    }
