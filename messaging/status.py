"""The message's states, who may become what, and `move()`: the only writer of `Message.status`.

    queued ──► sending ──► submitted ──► sent ──► delivered ──► read ──► played
      ▲           │            │           │          a receipt may skip states, and may overtake the answer to
      ├── retry ──┤            └───────────┴──► failed          the send; a failed message may still be delivered:
      │           ├──► unconfirmed ──► any of the above         late proof beats a guess
      └───────────┘        (the answer was lost: looked up, or decided by policy)

A change is a compare-and-set under a row lock, and its MessageEvent is written in the same transaction. News that
comes too late to change anything is kept as an event with `applied = False`; an exact repetition is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import transaction
from psycopg.types.json import Jsonb

from messaging.models import Status
from pilot import sql

PROOF = (Status.SUBMITTED, Status.SENT, Status.DELIVERED, Status.READ, Status.PLAYED)

# From `queued` to a proof: an earlier attempt was taken for lost and turns out to have gone through. Not sending
# again is then the only right answer.
TABLE: Mapping[str, frozenset[str]] = {
    Status.QUEUED: frozenset({Status.SENDING, Status.CANCELLED, Status.FAILED, *PROOF}),
    Status.SENDING: frozenset({*PROOF, Status.QUEUED, Status.FAILED, Status.UNCONFIRMED}),
    Status.UNCONFIRMED: frozenset({*PROOF, Status.QUEUED, Status.FAILED}),
    Status.SUBMITTED: frozenset({Status.SENT, Status.DELIVERED, Status.READ, Status.PLAYED, Status.FAILED}),
    Status.SENT: frozenset({Status.DELIVERED, Status.READ, Status.PLAYED, Status.FAILED}),
    Status.DELIVERED: frozenset({Status.READ, Status.PLAYED}),
    Status.READ: frozenset({Status.PLAYED}),
    Status.FAILED: frozenset({Status.DELIVERED, Status.READ, Status.PLAYED}),
    Status.PLAYED: frozenset(),
    Status.CANCELLED: frozenset(),
}
FINAL = frozenset({Status.DELIVERED, Status.READ, Status.PLAYED, Status.FAILED, Status.CANCELLED})
WAITING = frozenset({Status.QUEUED, Status.SENDING, Status.UNCONFIRMED})

# Reaching a state fills in the times of those it implies.
REACHED_AT: Mapping[str, tuple[str, ...]] = {
    status: tuple(f"{earlier}_at" for earlier in PROOF[: rank + 1]) for rank, status in enumerate(PROOF)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One piece of news about one message.

    `lease_token` names the lease under which it was learned: when it is still the row's, the lease ends here,
    whatever becomes of the status. When it is not, the news is stale: proof still counts, and so does what concerns
    the very attempt (`attempted_at`) that the row is in doubt about; nothing else does.
    `new_lease` is given by a claim. `refund_attempt` says that the attempt cost nothing. `only_from` narrows the
    table for a guess that must not undo what was proved. `detail` goes into the timeline.
    """

    message_id: str
    to: str
    at: datetime
    detail: Mapping[str, Any] = field(default_factory=dict)
    lease_token: UUID | None = None
    attempted_at: datetime | None = None
    new_lease: UUID | None = None
    lease_until: datetime | None = None
    next_attempt_at: datetime | None = None
    refund_attempt: bool = False
    only_from: frozenset[str] | None = None
    failure_code: str = ""
    failure_detail: str = ""
    provider_message_id: str = ""
    recipient_id: str = ""


class Moved(NamedTuple):
    """What a batch of moves did: the ids of messages that changed, and the leases that ended."""

    changed: frozenset[str]
    released: frozenset[UUID]


NOTHING = Moved(frozenset(), frozenset())


def move(*moves: Move) -> Moved:
    """Applies `moves` in the given order, in one transaction. Locks rows by id, so that batches cannot deadlock.

    Raises nothing for late or repeated news. IntegrityError when two messages claim one provider id.
    """
    if not moves:
        return NOTHING
    with transaction.atomic():
        return _move(moves)


def settle(moves: Sequence[Move]) -> Moved:
    """What move() does, for the outcomes of sends, in the caller's transaction.

    Nearly always each says that its provider took the message over, and nothing else has happened to it: such a batch
    is one statement. What that does not match, and any other batch, is left to move().
    """
    plain = (
        moves
        and len({move.message_id for move in moves}) == len(moves)
        and all(map(_is_plain_submission, moves))
    )
    submitted = _submit(moves) if plain else NOTHING
    rest = _move([move for move in moves if move.lease_token not in submitted.released])
    return Moved(submitted.changed | rest.changed, submitted.released | rest.released)


def start(leases: Mapping[str, UUID], *, now: datetime, lease_until: datetime) -> frozenset[str]:
    """What move() does for claims: makes queued messages `sending`, each under its lease, in one statement.

    The caller has locked them, in this transaction. Returns the ids of those that were still queued.
    """
    return frozenset(
        row[0] for row in sql.fetch(_START, [now, lease_until, list(leases), list(leases.values())])
    )


def _move(moves: Sequence[Move]) -> Moved:
    if not moves:
        return NOTHING
    rows = _lock(moves)
    known = [(rows[move.message_id], move) for move in moves if move.message_id in rows]
    news = [(row, move, _take_in(row, move)) for row, move in known]
    _write([row for row in rows.values() if row.dirty])
    _record(_events(news))
    changed = frozenset(move.message_id for _row, move, applied in news if applied)
    return Moved(changed, frozenset(token for row in rows.values() for token in row.released))


@dataclass(slots=True)
class _Row:
    """The columns that a move may change, as they are under the lock."""

    id: str
    tenant_id: int
    status: str
    attempts: int
    attempted_at: datetime | None
    next_attempt_at: datetime | None
    held_by: str
    lease_token: UUID | None
    lease_until: datetime | None
    provider_message_id: str | None
    recipient_id: str
    failure_code: str
    failure_detail: str
    submitted_at: datetime | None
    sent_at: datetime | None
    delivered_at: datetime | None
    read_at: datetime | None
    played_at: datetime | None
    failed_at: datetime | None
    cancelled_at: datetime | None
    dirty: bool = False
    released: list[UUID] = field(default_factory=list)


_TYPES = {
    "status": "text",
    "attempts": "smallint",
    "held_by": "text",
    "lease_token": "uuid",
    "provider_message_id": "text",
    "recipient_id": "text",
    "failure_code": "text",
    "failure_detail": "text",
}
_READ = [column.name for column in fields(_Row) if column.name not in {"dirty", "released"}]
_WRITTEN = [name for name in _READ if name not in {"id", "tenant_id"}]

_LOCK = f"SELECT {', '.join(_READ)} FROM messaging_message WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
_UPDATE = f"""
UPDATE messaging_message m SET {", ".join(f"{name} = new.{name}" for name in _WRITTEN)}
FROM unnest(%s::text[], {", ".join(f"%s::{_TYPES.get(name, 'timestamptz')}[]" for name in _WRITTEN)})
     AS new (id, {", ".join(_WRITTEN)})
WHERE m.id = new.id
"""
_KINDS = "SELECT DISTINCT message_id, kind FROM messaging_messageevent WHERE message_id = ANY(%s)"
_INSERT = """
INSERT INTO messaging_messageevent (message_id, tenant_id, kind, detail, at, applied)
SELECT * FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::jsonb[], %s::timestamptz[], %s::boolean[])
"""


def _lock(moves: Sequence[Move]) -> dict[str, _Row]:
    ids = list({move.message_id for move in moves})
    return {row[0]: _Row(*row) for row in sql.fetch(_LOCK, [ids])}


def _take_in(row: _Row, move: Move) -> bool:
    """Changes `row` by `move`. True when the status changed."""
    overruled = _overruled(row, move)
    if move.lease_token is not None and move.lease_token == row.lease_token:
        _release(row)
    _learn_ids(row, move)
    if overruled or not _allowed(row, move):
        return False
    row.status, row.dirty = move.to, True
    row.next_attempt_at, row.held_by = move.next_attempt_at or _asked_about_at(move), ""
    _note_attempt(row, move)
    _note_times(row, move)
    return True


def _allowed(row: _Row, move: Move) -> bool:
    return move.to in TABLE[row.status] and (move.only_from is None or row.status in move.only_from)


def _overruled(row: _Row, move: Move) -> bool:
    """Who does not hold the lease may not undo what was decided since, nor queue what somebody is sending."""
    if move.to in PROOF or move.lease_token == row.lease_token:
        return False
    if row.status == Status.SENDING:
        return move.lease_token is not None or move.to == Status.QUEUED
    return move.lease_token is not None and move.attempted_at != row.attempted_at


def _release(row: _Row) -> None:
    assert row.lease_token is not None
    row.released.append(row.lease_token)
    row.lease_token, row.lease_until, row.dirty = None, None, True


def _asked_about_at(move: Move) -> datetime | None:
    """When to ask for the receipt of what the provider took over, if none comes (messaging/acknowledging.py)."""
    return move.at + settings.ACK_POLL_AFTER if move.to == Status.SUBMITTED else None


def _learn_ids(row: _Row, move: Move) -> None:
    if move.provider_message_id and not row.provider_message_id:
        row.provider_message_id, row.dirty = move.provider_message_id, True
    if move.recipient_id and move.recipient_id != row.recipient_id:
        row.recipient_id, row.dirty = move.recipient_id, True


def _note_attempt(row: _Row, move: Move) -> None:
    if move.to == Status.SENDING:
        row.attempts += 1
        row.attempted_at = move.at
        row.lease_token, row.lease_until = move.new_lease, move.lease_until
    elif move.refund_attempt:
        row.attempts -= 1


def _note_times(row: _Row, move: Move) -> None:
    for column in REACHED_AT.get(move.to, ()):
        if getattr(row, column) is None:
            setattr(row, column, move.at)
    if move.to == Status.CANCELLED:
        row.cancelled_at = move.at
    row.failed_at = move.at if move.to == Status.FAILED else None
    row.failure_code, row.failure_detail = move.failure_code, move.failure_detail[:500]


def _write(rows: Sequence[_Row]) -> None:
    if not rows:
        return
    columns = [[getattr(row, name) for row in rows] for name in ("id", *_WRITTEN)]
    sql.execute(_UPDATE, columns)


class _Event(NamedTuple):
    message_id: str
    tenant_id: int
    kind: str
    detail: Jsonb
    at: datetime
    applied: bool


def _events(news: Iterable[tuple[_Row, Move, bool]]) -> list[_Event]:
    news = list(news)
    late = [(row.id, move.to) for row, move, applied in news if not applied]
    recorded = _recorded({message_id for message_id, _kind in late}) if late else set()
    events = []
    for row, move, applied in news:
        if not applied and (row.id, move.to) in recorded:
            continue
        recorded.add((row.id, move.to))
        detail = dict(move.detail) | ({"attempt": row.attempts} if move.to == Status.SENDING else {})
        events.append(_Event(row.id, row.tenant_id, move.to, Jsonb(detail), move.at, applied))
    return events


def _recorded(message_ids: set[str]) -> set[tuple[str, str]]:
    return {(row[0], row[1]) for row in sql.fetch(_KINDS, [list(message_ids)])}


def _record(events: Sequence[_Event]) -> None:
    if not events:
        return
    sql.execute(_INSERT, [list(column) for column in zip(*events, strict=True)])


# --- the two moves that every message makes ---------------------------------------------------------------

# The event comes from the row that the update gives back: where nothing changes, nothing is told.
_START = """
WITH started AS (
    UPDATE messaging_message m
    SET status = 'sending', attempts = m.attempts + 1, attempted_at = %s, lease_token = lease.token, lease_until = %s,
        next_attempt_at = NULL, held_by = '', failed_at = NULL, failure_code = '', failure_detail = ''
    FROM unnest(%s::text[], %s::uuid[]) AS lease (id, token)
    WHERE m.id = lease.id AND m.status = 'queued'
    RETURNING m.id, m.tenant_id, m.attempts, m.attempted_at
)
INSERT INTO messaging_messageevent (message_id, tenant_id, kind, detail, at, applied)
SELECT id, tenant_id, 'sending', jsonb_build_object('attempt', attempts), attempted_at, true FROM started
RETURNING message_id
"""
# All rows are locked by id before any is changed, as in move(), so that batches cannot deadlock.
_SUBMIT = """
WITH news AS (
    SELECT * FROM unnest(%s::text[], %s::uuid[], %s::timestamptz[], %s::text[], %s::text[])
        AS move (id, lease_token, at, provider_message_id, recipient_id)
), held AS (
    SELECT m.id FROM messaging_message m JOIN news USING (id) ORDER BY m.id FOR UPDATE OF m
), submitted AS (
    UPDATE messaging_message m
    SET status = 'submitted', submitted_at = coalesce(m.submitted_at, news.at),
        provider_message_id = coalesce(nullif(m.provider_message_id, ''), nullif(news.provider_message_id, '')),
        recipient_id = coalesce(nullif(news.recipient_id, ''), m.recipient_id),
        lease_token = NULL, lease_until = NULL,
        next_attempt_at = news.at + %s, held_by = '', failed_at = NULL, failure_code = '', failure_detail = ''
    FROM held JOIN news USING (id)
    WHERE m.id = held.id AND m.status = 'sending' AND m.lease_token = news.lease_token
    RETURNING m.id, m.tenant_id, news.at, news.lease_token
), told AS (
    INSERT INTO messaging_messageevent (message_id, tenant_id, kind, detail, at, applied)
    SELECT id, tenant_id, 'submitted', '{}', at, true FROM submitted
)
SELECT id, lease_token FROM submitted
"""


def _is_plain_submission(move: Move) -> bool:
    return move.to == Status.SUBMITTED and move.lease_token is not None and not move.detail


def _submit(moves: Sequence[Move]) -> Moved:
    news = [
        (move.message_id, move.lease_token, move.at, move.provider_message_id, move.recipient_id)
        for move in moves
    ]
    columns = [list(column) for column in zip(*news, strict=True)]
    rows = sql.fetch(_SUBMIT, [*columns, settings.ACK_POLL_AFTER])
    return Moved(frozenset(row[0] for row in rows), frozenset(row[1] for row in rows))
