"""What there is to judge, read once everything is over: the product's rows, the sandbox's ledger, the announcements."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg

from launcher.chaos.ledger import Entry, Promise, Row
from launcher.chaos.provider import Provider
from launcher.chaos.traffic import Traffic

MARK = re.compile(r"mensagem-(\d+)")
OUTCOME_UNKNOWN = "outcome_unknown"
DUMPED = (
    "instances_breaker",
    "instances_instanceevent",
    "instances_lane",
    "messaging_message",
    "messaging_messageevent",
    "messaging_parkedreceipt",
)

_ROWS = """
SELECT (metadata->>'number')::int, id, status, extract(epoch FROM deliver_until)::float8, failure_code,
       coalesce(provider_message_id, ''), attempts
FROM messaging_message ORDER BY id
"""
_HISTORY = """
SELECT message_id, kind, extract(epoch FROM at)::float8 FROM messaging_messageevent
WHERE applied AND kind <> 'held' ORDER BY message_id, id
"""
_UNFINISHED = """
SELECT (SELECT count(*) FROM messaging_message WHERE status IN ('queued', 'sending', 'unconfirmed')) AS waiting,
       (SELECT count(*) FROM webhooks_inboundcall WHERE applied_at IS NULL) AS calls,
       (SELECT count(*) FROM messaging_messageevent WHERE applied AND position IS NULL) AS unnumbered,
       (SELECT count(*) FROM messaging_parkedreceipt JOIN messaging_message
        USING (instance_id, provider_message_id)) AS parked,
       (SELECT count(*) FROM messaging_messageevent) AS events
"""
_ANNOUNCED = """
SELECT count(*) FILTER (WHERE position IS NULL), count(position), coalesce(max(position), 0),
       (SELECT position FROM pilot_streamplace WHERE name LIKE '%%.announced')
FROM messaging_messageevent WHERE applied
"""
_NUMBERED = "SELECT position, message_id, kind FROM messaging_messageevent WHERE position IS NOT NULL"
_OPEN = "SELECT count(*) FROM instances_instance WHERE status = 'open'"
_STUCK = "SELECT count(*) FROM instances_lane WHERE in_flight <> 0"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What the product still has to do: messages without an end, calls that are not applied, events without a number,
    parked receipts of messages that are known by now. `events` is how many there are."""

    waiting: int
    calls: int
    unnumbered: int
    parked: int
    events: int

    @property
    def nothing(self) -> bool:
        """Whether all is done."""
        return not (self.waiting or self.calls or self.unnumbered or self.parked)


class Rows:
    """The product's tables."""

    def __init__(self, url: str) -> None:
        self._url = url

    def open_instances(self) -> int:
        """How many instances may send."""
        with psycopg.connect(self._url) as connection:
            return _one(connection, _OPEN)[0]

    def unfinished(self) -> Unfinished:
        """What is still to do now."""
        with psycopg.connect(self._url) as connection:
            return Unfinished(*_one(connection, _UNFINISHED))

    def messages(self) -> list[Row]:
        """Every message with its history."""
        with psycopg.connect(self._url) as connection:
            history: Mapping[str, list[tuple[str, float]]] = defaultdict(list)
            for id, status, at in connection.execute(_HISTORY):
                history[id].append((status, at))
            rows = [Row(*values) for values in connection.execute(_ROWS)]
        return [replace(row, history=history[row.id]) for row in rows]

    def dump(self, directory: Path) -> None:
        """Write what the tables hold beside the logs, for whoever looks for a cause."""
        with psycopg.connect(self._url) as connection, connection.cursor() as cursor:
            for table in DUMPED:
                copy = f"COPY {table} TO STDOUT (FORMAT csv, HEADER)"
                with (directory / f"{table}.csv").open("wb") as file, cursor.copy(copy) as rows:
                    file.writelines(rows)

    def announcing(self) -> Iterator[str]:
        """What is wrong with the announcements: events without a number, holes, entries not yet on the stream."""
        with psycopg.connect(self._url) as connection:
            unnumbered, numbered, highest, announced = _one(connection, _ANNOUNCED)
        if unnumbered:
            yield f"{unnumbered} events have no position"
        if numbered != highest:
            yield f"{numbered} events are numbered up to {highest}"
        if (announced or 0) != highest:
            yield f"announced up to {announced} of {highest}"

    def numbered(self) -> dict[int, tuple[str, str]]:
        """Message and kind of each announced event, by its position."""
        with psycopg.connect(self._url) as connection:
            return {position: (id, kind) for position, id, kind in connection.execute(_NUMBERED)}

    def stuck_lanes(self) -> int:
        """Lanes that count a send in flight when there is none."""
        with psycopg.connect(self._url) as connection:
            (count,) = _one(connection, _STUCK)
            return int(count)


def _one(connection: psycopg.Connection, sql: str) -> tuple[int, ...]:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return tuple(row)


def promises(traffic: Traffic) -> list[Promise]:
    """What clients remember."""
    return [
        Promise(each.number, frozenset(each.ids), each.deliver_until) for each in traffic.promises.values()
    ]


def entries(provider: Provider, rows: Sequence[Row]) -> list[Entry]:
    """The ledger with what was told of each entry and, where it matters, whether a look-up would have found it."""
    told: Mapping[str, dict[str, float]] = defaultdict(dict)
    for news in provider.told():
        told[news["key_id"]][news["status"]] = news["at"]
    unknown = {row.number for row in rows if row.failure_code == OUTCOME_UNKNOWN}
    found = [_entry(line, told[line["key_id"]]) for line in provider.ledger()]
    return [_looked_up(entry, provider) if entry.number in unknown else entry for entry in found]


def _entry(line: Mapping[str, Any], told: Mapping[str, float]) -> Entry:
    mark = MARK.search(line["text"])
    assert mark is not None, line
    return Entry(
        number=int(mark[1]),
        key_id=line["key_id"],
        asked_at=line["asked_at"],
        status=line["status"],
        told=told,
        instance=line["instance"],
    )


def _looked_up(entry: Entry, provider: Provider) -> Entry:
    return replace(entry, stored=provider.has_stored(entry.instance, entry.key_id))
