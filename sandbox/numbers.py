"""From the number a caller gives to the JID that is sent to, and who exists on the emulated WhatsApp."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from sandbox.database import Database

COMPLETE_JID = re.compile(r"@(s\.whatsapp\.net|g\.us|lid|broadcast)$")
BRAZIL = re.compile(r"^55(\d\d)\d(\d{8})$")
OLD_FORM_GROUP_LENGTH = 24
GROUP_LENGTH = 18


def to_jid(number: str) -> str:
    """Evolution 2.3.7's rule: Brazilian numbers of area codes 31 and up lose the ninth digit, Mexican and
    Argentine ones of 13 digits the third; 18 digits or more are a group."""
    number = re.sub(r":\d+", "", number)
    if COMPLETE_JID.search(number):
        return number
    number = re.sub(r"[\s+()]", "", number).split("@")[0]
    if "-" in number and len(number) >= OLD_FORM_GROUP_LENGTH:
        return re.sub(r"[^\d-]", "", number) + "@g.us"
    digits = re.sub(r"\D", "", number)
    if len(digits) >= GROUP_LENGTH:
        return digits + "@g.us"
    return _national_form(digits) + "@s.whatsapp.net"


def _national_form(digits: str) -> str:
    if digits[:2] in ("52", "54") and len(digits) == 13:
        return digits[:2] + digits[3:]
    match = BRAZIL.match(digits)
    if match and int(match[1]) >= 31 and match[2][0] >= "7":
        return f"55{match[1]}{match[2]}"
    return digits


def is_group(jid: str) -> bool:
    return jid.endswith("@g.us")


@dataclass(frozen=True)
class Contact:
    """One number or group on the emulated WhatsApp. `jid`: the canonical JID WhatsApp answers with;
    `lid`: receipts and inbound messages name it by its @lid; `participants`: the JIDs in a group."""

    jid: str
    exists: bool = True
    lid: bool = False
    name: str | None = None
    participants: tuple[str, ...] = ()

    @property
    def lid_jid(self) -> str:
        digest = hashlib.sha256(self.jid.encode()).hexdigest()
        return f"{int(digest, 16) % 10**15:015d}@lid"

    @property
    def address(self) -> str:
        """What WhatsApp calls it in receipts."""
        return self.lid_jid if self.lid else self.jid


class Directory:
    """Everybody exists until a test says otherwise. The cache is Evolution's, of confirmed numbers."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def find(self, number: str) -> Contact:
        jid = to_jid(number)
        doc = self._db.value("SELECT doc FROM number WHERE jid = ?", jid)
        return Contact(**{"jid": jid, **json.loads(doc or "{}")})

    def put(self, number: str, changes: dict[str, Any]) -> Contact:
        """Change what is known of a number, and let Evolution forget it; raises TypeError for an unknown
        field."""
        contact = Contact(**{**asdict(self.find(number)), **changes})
        doc = json.dumps(asdict(contact))
        with self._db.transaction():
            self._db.execute("INSERT OR REPLACE INTO number VALUES (?, ?)", to_jid(number), doc)
            self._db.execute("DELETE FROM number_cache WHERE jid = ?", to_jid(number))
        return contact

    def cached(self, jid: str) -> bool:
        return self._db.one("SELECT 1 FROM number_cache WHERE jid = ?", jid) is not None

    def cache(self, jid: str) -> None:
        self._db.execute("INSERT OR IGNORE INTO number_cache VALUES (?)", jid)
