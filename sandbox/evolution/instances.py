"""The instances of one Evolution server: what its database keeps of them and what only its memory knows."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from sandbox.database import Database
from sandbox.evolution.formats import cuid, iso_now

BAILEYS = "WHATSAPP-BAILEYS"
BUSINESS = "WHATSAPP-BUSINESS"
PASSIVE = "EVOLUTION"
INTEGRATIONS = (BAILEYS, BUSINESS, PASSIVE)

SETTINGS: dict[str, Any] = {
    "rejectCall": False,
    "msgCall": "",
    "groupsIgnore": False,
    "alwaysOnline": False,
    "readMessages": False,
    "readStatus": False,
    "syncFullHistory": False,
    "wavoipToken": "",
}


@dataclass
class QrCode:
    """The QR now on offer; `count` 0 means none was issued yet."""

    count: int = 0
    code: str = ""
    base64: str = ""
    pairing_code: str | None = None

    def describe(self) -> dict[str, Any]:
        if not self.count:
            return {"count": 0}
        shown = {"pairingCode": self.pairing_code, "code": self.code, "base64": self.base64}
        return {**shown, "count": self.count}


@dataclass
class Session:
    """In memory only. `state` is what connectionState reports; `socket` is what sends depend on: none
    (never started), connecting, open or closed. The two can disagree, as in the real server."""

    state: str = "close"
    socket: str = "none"
    connected_once: bool = False
    deleting: bool = False
    qr: QrCode = field(default_factory=QrCode)
    attempt: asyncio.Task[None] | None = None


@dataclass
class Instance:
    """`status` is the database's copy of the state; `paired` tells whether WhatsApp credentials are kept."""

    name: str
    id: str
    integration: str
    token: str
    number: str | None = None
    business_id: str | None = None
    settings: dict[str, Any] = field(default_factory=lambda: dict(SETTINGS))
    settings_id: str = field(default_factory=cuid)
    webhook: dict[str, Any] | None = None
    status: str = "close"
    paired: bool = False
    owner_jid: str | None = None
    profile_name: str | None = None
    disconnection_code: int | None = None
    disconnection_object: str | None = None
    disconnection_at: str | None = None
    created_at: str = field(default_factory=iso_now)
    updated_at: str = field(default_factory=iso_now)
    session: Session = field(default_factory=Session)

    def state_body(self) -> dict[str, Any]:
        return {"instance": {"instanceName": self.name, "state": self.session.state}}


class Instances:
    """By name. Those that were open when the process died are open again."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._by_name: dict[str, Instance] = {}
        self._load()

    def _load(self) -> None:
        for row in self._db.rows("SELECT doc FROM instance ORDER BY rowid"):
            instance = Instance(**json.loads(row["doc"]))
            self._by_name[instance.name] = instance
            if instance.status == "open":
                instance.session = Session(state="open", socket="open", connected_once=True)

    def get(self, name: str) -> Instance | None:
        return self._by_name.get(name)

    def all(self) -> list[Instance]:
        return list(self._by_name.values())

    def with_token(self, token: str) -> list[Instance]:
        return [instance for instance in self.all() if instance.token == token]

    def add(self, instance: Instance) -> None:
        self._by_name[instance.name] = instance
        self.save(instance)

    def save(self, instance: Instance) -> None:
        """Keep what changed; work still running for an instance removed meanwhile must not bring it back."""
        if self.get(instance.name) is not instance:
            return
        instance.updated_at = iso_now()
        fields = (field.name for field in dataclasses.fields(instance) if field.name != "session")
        doc = json.dumps({name: getattr(instance, name) for name in fields})
        self._db.execute("INSERT OR REPLACE INTO instance VALUES (?, ?)", instance.name, doc)

    def remove(self, instance: Instance) -> None:
        """Forget the instance and its messages; the ledger keeps what was delivered."""
        if self.get(instance.name) is not instance:
            return
        del self._by_name[instance.name]
        with self._db.transaction():
            self._db.execute("DELETE FROM instance WHERE name = ?", instance.name)
            for table in ("message", "message_update", "contact"):
                self._db.execute(f"DELETE FROM {table} WHERE instance_id = ?", instance.id)

    def wipe(self) -> None:
        for instance in self.all():
            if instance.session.attempt:
                instance.session.attempt.cancel()
        self._by_name.clear()
