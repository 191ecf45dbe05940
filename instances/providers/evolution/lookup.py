"""Looking for a message of an unknown outcome among those that Evolution API stored."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from instances.providers.base import (
    AMBIGUOUS,
    Answer,
    Finding,
    Found,
    OutboundMessage,
    Outcome,
    ProviderError,
)
from instances.providers.evolution import answers, events

# How far from the attempt a record may be: its clock is Evolution's, in whole seconds, and a send may be held.
BEFORE = timedelta(seconds=5)
AFTER = timedelta(seconds=120)
PAGE_SIZE = 200

# From weak to strong. ERROR overrules an acknowledgement by the server, never a delivery.
RANK = ("PENDING", "SERVER_ACK", "ERROR", "DELIVERY_ACK", "READ", "PLAYED")

# Brazil has mobile numbers with and without a ninth digit; either form may come back for the same person.
BRAZILIAN = re.compile(r"^\+55(\d\d)9?(\d{8})$")

STILL_UNKNOWN = Found(Finding.STILL_UNKNOWN)

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Search:
    """A message, its text on the wire, and when its last attempt started."""

    message: OutboundMessage
    text: str
    started: datetime

    def body(self) -> dict[str, Any]:
        """By id where it is known; else everything that was sent around the attempt."""
        where: dict[str, Any] = {"key": {"id": self.message.provider_message_id}}
        if not self.message.provider_message_id:
            window = {"gte": _iso(self.started - BEFORE), "lte": _iso(self.started + AFTER)}
            where = {"key": {"fromMe": True}, "messageTimestamp": window}
        return {"where": where, "page": 1, "offset": PAGE_SIZE}

    def read(self, answer: Answer) -> Found:
        """FOUND when exactly one stored message is this one. Raises ProviderError without an answer."""
        page = answers.success(answer).get("messages")
        if not isinstance(page, dict) or not isinstance(page.get("records"), list):
            raise ProviderError(AMBIGUOUS, "The answer is not a list of messages.", outcome=Outcome.UNKNOWN)
        records = [record for record in page["records"] if _key(record).get("id")]
        if self.message.provider_message_id:
            return _finding([record for record in records if self._has_id(record)])
        if page.get("total", 0) > len(page["records"]):
            return STILL_UNKNOWN  # a twin may be on another page
        return _finding([record for record in records if self._matches(record)])

    def _has_id(self, record: Record) -> bool:
        return _key(record)["id"] == self.message.provider_message_id

    def _matches(self, record: Record) -> bool:
        """Every filter of the request again: Evolution does not honour all of them in every version."""
        key = _key(record)
        at = events.moment(record.get("messageTimestamp"))
        return (
            key.get("fromMe") is True
            and at is not None
            and self.started - BEFORE <= at <= self.started + AFTER
            and any(self._is_recipient(str(key.get(name) or "@")) for name in ("remoteJid", "remoteJidAlt"))
            and events.text_of(record.get("message")).strip() == self.text
        )

    def _is_recipient(self, jid: str) -> bool:
        if jid == self.message.recipient_id:
            return True
        return _without_ninth_digit(events.number_of(jid)) == _without_ninth_digit(self.message.to)


def _finding(matches: Sequence[Record]) -> Found:
    ids = {str(_key(record)["id"]) for record in matches}
    if len(ids) != 1:
        return STILL_UNKNOWN
    recipient = _key(matches[0]).get("remoteJid", "")
    return Found(
        Finding.FOUND, provider_message_id=ids.pop(), recipient_id=recipient, status=_status(matches)
    )


def _status(matches: Sequence[Record]) -> str:
    """The stored message has no status of its own, only updates in any order: the strongest counts."""
    updates = [update for record in matches for update in record.get("MessageUpdate") or []]
    words = [update["status"] for update in updates if update.get("status") in RANK]
    return events.STATUSES[max(words, key=RANK.index, default="PENDING")]


def _key(record: Any) -> Record:
    key = record.get("key") if isinstance(record, dict) else None
    return key if isinstance(key, dict) else {}


def _without_ninth_digit(number: str) -> str:
    return BRAZILIAN.sub(r"+55\1\2", number)


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
