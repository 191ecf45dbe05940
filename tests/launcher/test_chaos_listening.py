"""The reader of announcements: what it misses, and what excuses it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from launcher.chaos.faults import Outage
from launcher.chaos.listening import Hole, Listener

HOLE = Hole(3, 6, since=10.0, until=11.0)


@pytest.mark.parametrize(
    ("outage", "excused"),
    [
        (Outage(10.5, 10.6), True),
        (Outage(9.0, 10.1), True),
        (Outage(10.9), True),
        (Outage(5.0, 9.9), False),
        (Outage(11.1, 12.0), False),
    ],
)
def test_only_an_outage_in_the_meantime_excuses_a_hole(outage: Outage, excused: bool) -> None:
    assert HOLE.excused([outage]) is excused
    assert not HOLE.excused([])


class Stream:
    """Gives what a Redis stream would, a batch for each read, then nothing."""

    def __init__(self, *batches: Sequence[int]) -> None:
        self._batches = [[self._entry(position) for position in batch] for batch in batches]

    def _entry(self, position: int) -> tuple[bytes, dict[bytes, bytes]]:
        payload = {"position": position, "internalId": f"m{position}", "kind": "sent"}
        return f"{position}-0".encode(), {b"payload": json.dumps(payload).encode()}

    def xread(self, _streams: Any, **_options: Any) -> Any:
        return [(b"stream:status", self._batches.pop(0))] if self._batches else []

    def close(self) -> None:
        """Nothing to close."""


def heard(*batches: Sequence[int]) -> Listener:
    listener = Listener("redis://127.0.0.1:1")
    listener._redis.close()
    listener._redis = Stream(*batches)  # type: ignore[assignment]
    listener.start()
    listener.stop()
    return listener


def rows(*positions: int) -> dict[int, tuple[str, str]]:
    return {position: (f"m{position}", "sent") for position in positions}


def test_hears_everything_also_what_is_announced_twice() -> None:
    listener = heard([1, 2, 3], [2, 3, 4], [5])

    assert list(listener.wrong(rows(1, 2, 3, 4, 5), [])) == []


def test_finds_what_was_not_announced() -> None:
    listener = heard([1, 2], [5])

    assert list(listener.wrong(rows(1, 2, 3, 4, 5), [])) == ["positions 3 to 4 were not announced"]
    assert list(listener.wrong(rows(1, 2, 3, 4, 5), [Outage(0.0)])) == []


def test_finds_announcements_that_say_something_else_than_the_row() -> None:
    listener = heard([1])

    assert list(listener.wrong({1: ("m1", "read")}, [])) == [
        "position 1 was announced as ('m1', 'sent'), and is ('m1', 'read')"
    ]


def test_nothing_to_read_does_not_show_that_nothing_was_lost_before() -> None:
    """Announced, flushed before it was read, and then a silence in which nothing is there to read."""
    listener = Listener("redis://127.0.0.1:1")
    stream = Stream([1, 2], [])
    listener._take_in(stream.xread({})[0][1])
    flushed = Outage(time.monotonic(), time.monotonic())
    time.sleep(0.01)
    listener._take_in(stream.xread({})[0][1])
    listener._take_in(Stream([5]).xread({})[0][1])

    assert list(listener.wrong(rows(1, 2, 3, 4, 5), [flushed])) == []
