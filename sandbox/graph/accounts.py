"""The emulated business accounts: WhatsApp numbers and Instagram accounts, and what else Graph stores."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from sandbox.database import Database

WHATSAPP, INSTAGRAM = "whatsapp", "instagram"


@dataclass(frozen=True, kw_only=True)
class Account:
    """`id` is the phone number id or the Instagram account id, `business_id` the WABA or the Page.

    `window` says how a closed 24-hour window is reported: sync, async or off. `bsuid` is none, both or only:
    how webhooks name people. `batch` holds webhooks back for so many seconds and posts them together.
    """

    id: str
    kind: str = WHATSAPP
    business_id: str = "waba"
    token: str = "token"
    app_secret: str = "app-secret"
    display_number: str = "15550000000"
    username: str = "loja"
    webhook: str = ""
    verify_token: str = ""
    window: str = "async"
    bsuid: str = "both"
    batch: float = 0.0
    messages_per_second: int = 80
    message_status: str = "accepted"
    quality: str = "GREEN"
    field_shape: str = "changes"


@dataclass(frozen=True)
class Row:
    """One stored object: its fields, and bytes where it is a file."""

    id: str
    fields: dict[str, Any] = field(default_factory=dict)
    data: bytes = b""


class Objects:
    """Graph's objects by kind and id, in the sandbox's database."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def put(self, kind: str, id_: str, fields: dict[str, Any], data: bytes = b"") -> None:
        sql = "INSERT OR REPLACE INTO graph_object (kind, id, doc, data) VALUES (?, ?, ?, ?)"
        self._db.execute(sql, kind, id_, json.dumps(fields), data)

    def get(self, kind: str, id_: str) -> Row | None:
        row = self._db.one("SELECT doc, data FROM graph_object WHERE kind = ? AND id = ?", kind, id_)
        return Row(id_, json.loads(row["doc"]), bytes(row["data"])) if row else None

    def all(self, kind: str) -> Iterator[Row]:
        for row in self._db.rows("SELECT * FROM graph_object WHERE kind = ? ORDER BY rowid", kind):
            yield Row(row["id"], json.loads(row["doc"]))

    def delete(self, kind: str, id_: str) -> None:
        self._db.execute("DELETE FROM graph_object WHERE kind = ? AND id = ?", kind, id_)


class Accounts:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def put(self, id_: str, changes: dict[str, Any]) -> Account:
        """Make or change an account. Raises TypeError for a field that accounts do not have."""
        known = self.get(id_)
        account = Account(**{**(asdict(known) if known else {}), **changes, "id": id_})
        self._objects.put("account", id_, asdict(account))
        return account

    def get(self, id_: str) -> Account | None:
        row = self._objects.get("account", id_)
        return Account(**row.fields) if row else None

    def all(self) -> list[Account]:
        return [Account(**row.fields) for row in self._objects.all("account")]

    def by_token(self, token: str) -> Account | None:
        return next((account for account in self.all() if account.token == token), None)

    def of_business(self, business_id: str) -> list[Account]:
        return [account for account in self.all() if account.business_id == business_id]


def digits(written: str) -> str:
    """A number as Graph takes it: with or without +, spaces, dashes and brackets."""
    return re.sub(r"[+\s().-]", "", written)


def bsuid(business_id: str, wa_id: str) -> str:
    """The business-scoped id of a person: the same for all numbers of one business."""
    digest = hashlib.sha256(f"{business_id}/{wa_id}".encode()).hexdigest()
    return f"BR.{int(digest, 16) % 10**16:016d}"
