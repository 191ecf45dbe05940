"""The verdict: every promise and every row against what really went out. Pure functions over plain values.

docs/reliability.md says for each rule why it is one.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

# From the clock's reading to the arrival of the request: the way over a loopback socket, and the scheduler's delays on
# a machine whose processors are all busy. See docs/reliability.md for what was measured.
TRANSIT = 0.25  # seconds
# News that is answered for shortly before a message is given up may come too late to be matched.
MATCHED_WITHIN = 5.0  # seconds

WAITING = frozenset({"queued", "sending", "unconfirmed"})
RANK: Mapping[str, int] = {"submitted": 1, "sent": 2, "delivered": 3, "read": 4, "played": 5}
DELIVERED = RANK["delivered"]
# What is known to have never gone out. The rest are `undeliverable` (it did) and `outcome_unknown` (nobody knows).
NEVER_SENT = frozenset(
    {
        "attempts_exhausted",
        "expired",
        "instance_removed",
        "not_on_whatsapp",
        "opted_out",
        "queue_timeout",
        "rejected",
    }
)
MEANING: Mapping[str, str] = {
    "PENDING": "submitted",
    "SERVER_ACK": "sent",
    "DELIVERY_ACK": "delivered",
    "READ": "read",
    "PLAYED": "played",
}
ERROR = "ERROR"
# Who may become what (DESIGN): stated here once more, apart from the product.
PROOF = frozenset(RANK)
SUCCESSORS: Mapping[str, frozenset[str]] = {
    "queued": frozenset({"sending", "failed", "cancelled"}) | PROOF,
    "sending": frozenset({"queued", "failed", "unconfirmed"}) | PROOF,
    "unconfirmed": frozenset({"queued", "failed"}) | PROOF,
    "submitted": frozenset({"sent", "delivered", "read", "played", "failed"}),
    "sent": frozenset({"delivered", "read", "played", "failed"}),
    "delivered": frozenset({"read", "played"}),
    "read": frozenset({"played"}),
    "failed": frozenset({"delivered", "read", "played"}),
    "played": frozenset(),
    "cancelled": frozenset(),
}


@dataclass(frozen=True, slots=True)
class Promise:
    """What clients were answered to one request: the ids of messages, and the deadline (unix time)."""

    number: int
    ids: frozenset[str]
    deliver_until: float


@dataclass(frozen=True, slots=True)
class Row:
    """A message as the product has it. `history`: its changes, oldest first, each a status and a unix time."""

    number: int
    id: str
    status: str
    deliver_until: float
    failure_code: str = ""
    provider_message_id: str = ""
    attempts: int = 0
    history: Sequence[tuple[str, float]] = ()

    @property
    def ended_at(self) -> float:
        """When its status changed for the last time."""
        return self.history[-1][1] if self.history else self.deliver_until


@dataclass(frozen=True, slots=True)
class Entry:
    """A message that went out, `asked_at` (unix time) being when the request came in.

    `status` is the furthest receipt there was, `told` the receipts that the product answered for, each with the time.
    `stored`: Evolution itself knows the message, so that a look-up can find it.
    """

    number: int
    key_id: str
    asked_at: float
    status: str = "PENDING"
    told: Mapping[str, float] = field(default_factory=dict)
    stored: bool = False
    instance: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A promise that was not kept. `kind`: lost, duplicates, late, wrong_status or unannounced."""

    kind: str
    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Message:
    """One request's promise, rows and ledger entries: one each, if it was accepted and sent and all is well."""

    number: int
    promise: Promise | None
    rows: Sequence[Row]
    entries: Sequence[Entry]


class Numbered(Protocol):
    """What belongs to one request."""

    @property
    def number(self) -> int: ...


NumberedT = TypeVar("NumberedT", bound=Numbered)


def judge(messages: Iterable[Message]) -> list[Finding]:
    """Everything that is wrong."""
    return [
        Finding(kind, message.number, why)
        for message in messages
        for kind, rule in RULES.items()
        for why in rule(message)
    ]


def gather(promises: Iterable[Promise], rows: Iterable[Row], entries: Iterable[Entry]) -> list[Message]:
    """What belongs together, by the number of the request."""
    promised = {promise.number: promise for promise in promises}
    stored, sent = _grouped(rows), _grouped(entries)
    numbers = sorted({*promised, *stored, *sent})
    return [Message(n, promised.get(n), stored.get(n, ()), sent.get(n, ())) for n in numbers]


def tally(messages: Iterable[Message]) -> Counter[str]:
    """How the accepted messages ended: a status, failed:<code>, or lost. Their sum is the number of promises."""
    return Counter(_end(message) for message in messages if message.promise)


def closest_call(messages: Iterable[Message]) -> float | None:
    """By how many seconds the latest request came after its message's deadline; negative where it came before."""
    pairs = ((until, entry) for each in messages for until in _deadlines(each) for entry in each.entries)
    return max((entry.asked_at - until for until, entry in pairs), default=None)


def _end(message: Message) -> str:
    if not message.rows or message.rows[0].status in WAITING:
        return "lost"
    row = message.rows[0]
    return f"failed:{row.failure_code}" if row.status == "failed" else row.status


def _grouped(items: Iterable[NumberedT]) -> dict[int, list[NumberedT]]:
    groups: dict[int, list[NumberedT]] = defaultdict(list)
    for item in items:
        groups[item.number].append(item)
    return groups


# --- the rules --------------------------------------------------------------------------------------------


def _lost(message: Message) -> Iterator[str]:
    stored = {row.id for row in message.rows}
    if message.promise:
        yield from (f"accepted as {id}, and there is no such message" for id in message.promise.ids - stored)
    yield from (f"is still {row.status}" for row in message.rows if row.status in WAITING)


def _duplicates(message: Message) -> Iterator[str]:
    if len(message.entries) > 1:
        yield f"went out {len(message.entries)} times"
    if len(message.rows) > 1:
        yield f"is there {len(message.rows)} times"
    if message.promise and len(message.promise.ids) > 1:
        yield f"one key was answered with {len(message.promise.ids)} messages"


def _late(message: Message) -> Iterator[str]:
    for until in _deadlines(message):
        for entry in message.entries:
            if entry.asked_at > until + TRANSIT:
                yield f"went out {entry.asked_at - until:.3f} s after its deadline"


def _deadlines(message: Message) -> set[float]:
    """The one that was promised; that of the row where nobody was answered."""
    if message.promise:
        return {message.promise.deliver_until}
    return {row.deliver_until for row in message.rows}


def _wrong(message: Message) -> Iterator[str]:
    if message.entries and not message.rows:
        yield "went out, and the product does not know it"
    entry = message.entries[0] if message.entries else None
    for row in message.rows:
        yield from _wrong_history(row)
        if row.status == "failed":
            yield from _wrong_failure(row, entry)
        elif row.status not in WAITING:
            yield from _wrong_proof(row, entry)


def _wrong_history(row: Row) -> Iterator[str]:
    statuses = [status for status, _at in row.history]
    if statuses[:1] != ["queued"] or statuses[-1] != row.status:
        yield f"is {row.status}, and its history says {' '.join(statuses) or 'nothing'}"
    for earlier, later in itertools.pairwise(statuses):
        if later not in SUCCESSORS[earlier]:
            yield f"went from {earlier} to {later}"


def _wrong_proof(row: Row, entry: Entry | None) -> Iterator[str]:
    """A message that is said to have gone out. Nobody cancels here, so that is wrong as well."""
    if row.status not in RANK or entry is None:
        yield f"is {row.status}, and did not go out"
        return
    if row.provider_message_id not in ("", entry.key_id):
        yield f"goes by {row.provider_message_id}, and went out as {entry.key_id}"
    least = max((RANK[MEANING[receipt]] for receipt in entry.told if receipt != ERROR), default=0)
    if ERROR in entry.told and least < DELIVERED:
        yield f"is {row.status}, and was told that it could not be delivered"
    if RANK[row.status] < least:
        yield f"is {row.status}, and was told {' '.join(entry.told)}"
    if RANK[row.status] > RANK[MEANING.get(entry.status, "sent")]:
        yield f"is {row.status}, and the furthest receipt was {entry.status}"


def _wrong_failure(row: Row, entry: Entry | None) -> Iterator[str]:
    code = row.failure_code
    if code in NEVER_SENT and entry:
        yield f"failed as {code}, and went out"
    if code == "undeliverable" and (entry is None or entry.status != ERROR):
        yield f"failed as undeliverable, and the furthest receipt was {entry.status if entry else 'none'}"
    if code == "outcome_unknown" and entry and _could_be_known(entry, given_up_at=row.ended_at):
        yield f"failed as outcome_unknown, and was told {' '.join(entry.told) or 'nothing, but Evolution knew'}"
    if code == "expired" and not row.attempts and row.ended_at < row.deliver_until:
        yield "expired before its deadline, without a single attempt"
    if code not in NEVER_SENT | {"undeliverable", "outcome_unknown"}:
        yield f"failed as {code}, which is no reason"


def _could_be_known(entry: Entry, *, given_up_at: float) -> bool:
    """The echo of the send names recipient and text, and so does what Evolution stored: each text is sent once."""
    echoed_at = entry.told.get("PENDING", given_up_at)
    return entry.stored or echoed_at < given_up_at - MATCHED_WITHIN


RULES: Mapping[str, Callable[[Message], Iterator[str]]] = {
    "lost": _lost,
    "duplicates": _duplicates,
    "late": _late,
    "wrong_status": _wrong,
}
