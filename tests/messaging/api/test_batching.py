"""Requests that come in together."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection

from accounts.models import ApiKey
from messaging import accepting
from messaging.api import batching
from messaging.api.batching import Ask, Batches, Reply, answer_all
from messaging.models import Message
from tests import factories

OWN = {"to": "+5511999990000", "text": "Olá"}

pytestmark = pytest.mark.django_db


@pytest.fixture
def sender(db: None) -> tuple[ApiKey, str]:
    return factories.make_sender()


def ask(raw_key: str, body: Any = OWN, *, once: str | None = None, language: str = "en") -> Ask:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Ask(raw_key, raw, once, "request-1", language)


def statuses(asks: Sequence[Ask]) -> list[int | None]:
    return [reply and reply.status for reply in answer_all(asks)]


# --- what is answered -------------------------------------------------------------------------------------


def test_accepts_what_is_right_and_leaves_the_rest(sender: tuple[ApiKey, str]) -> None:
    key, raw = sender
    _reader, reading = factories.make_key(key.project, scopes=["messages:read"])
    asks = [
        ask(raw),
        ask("pilot_live_unknown"),
        ask(reading),
        ask(raw, b"{"),
        ask(raw, b"[]"),
        ask(raw, {"to": "12", "text": "a"}),
        ask(raw, {"to": "+5511999990000"}),
        ask(raw, once="a b"),
        ask(raw, once="k-1"),
        ask(raw, once="k-1"),
    ]
    assert statuses(asks) == [202, None, None, None, None, None, None, None, 202, None]
    assert Message.objects.count() == 2


def test_answers_in_the_language_of_each(sender: tuple[ApiKey, str]) -> None:
    replies = answer_all([ask(sender[1]), ask(sender[1], language="pt-br")])
    whys = [reply.body["why"] for reply in replies if reply]
    assert len(set(whys)) == 2


def test_leaves_all_to_the_long_way_when_nothing_can_be_looked_up(
    sender: tuple[ApiKey, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_given: Any, **_options: Any) -> Any:
        raise OperationalError("the database is away")

    monkeypatch.setattr(batching, "prepare", away)
    batches = Batches(answer_all)
    assert batches._replies([ask(sender[1])]) == [None]


def test_lets_one_bad_row_not_fail_the_others(sender: tuple[ApiKey, str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE messaging_message ADD CONSTRAINT odd CHECK (metadata->>'a' IS NULL) NOT VALID"
        )
    with connection.cursor() as cursor:
        cursor.execute("SAVEPOINT before")
    assert statuses([ask(sender[1]), ask(sender[1], OWN | {"metadata": {"a": "1"}})]) == [None, None]
    with connection.cursor() as cursor:
        cursor.execute("ROLLBACK TO SAVEPOINT before")
    assert not Message.objects.exists()


@pytest.mark.parametrize("written", [True, False])
def test_never_accepts_again_what_may_have_been_written(
    sender: tuple[ApiKey, str], monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """The connection breaks before or after the commit, and nobody can tell which."""
    store = accepting.store

    def broken(*given: Any) -> Any:
        if written:
            store(*given)
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(accepting, "store", broken)
    monkeypatch.setattr(batching.connection, "close", lambda: None)
    [refused, reply] = answer_all([ask("pilot_live_unknown"), ask(sender[1])])
    assert refused is None
    assert reply is not None
    assert (reply.status, reply.body["error"]["code"], reply.headers) == (
        503,
        "unavailable",
        {"Retry-After": "5"},
    )
    assert reply.body["error"]["request_id"] == "request-1"
    assert Message.objects.count() == int(written)


def test_never_accepts_again_although_the_connection_cannot_be_closed(
    sender: tuple[ApiKey, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = accepting.store

    def written_and_broken(*given: Any) -> Any:
        store(*given)
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(accepting, "store", written_and_broken)
    monkeypatch.setattr(batching, "connection", Unclosable)
    assert [reply and reply.status for reply in Batches(answer_all)._replies([ask(sender[1])])] == [503]


def test_leaves_to_the_long_way_what_a_deadlock_kept_from_being_written(
    sender: tuple[ApiKey, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def deadlocked(*_given: Any) -> Any:
        raise OperationalError("deadlock detected") from psycopg.errors.DeadlockDetected()

    monkeypatch.setattr(accepting, "store", deadlocked)
    assert statuses([ask(sender[1])]) == [None]


class Unclosable:
    """A connection of which nothing more can be had."""

    @staticmethod
    def close() -> None:
        raise OperationalError("the connection is lost")


def test_never_accepts_again_what_it_cannot_show(
    sender: tuple[ApiKey, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_given: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(batching, "answer_of", broken)
    assert statuses([ask(sender[1])]) == [503]
    assert Message.objects.count() == 1


# --- the thread -------------------------------------------------------------------------------------------


def test_answers_together_what_came_in_meanwhile() -> None:
    first_is_in, go_on = threading.Event(), threading.Event()
    sizes: list[int] = []

    def answer(asks: Sequence[Ask]) -> list[Reply | None]:
        sizes.append(len(asks))
        if len(sizes) == 1:
            first_is_in.set()
            go_on.wait(10)
        return [Reply(202, {"key": each.raw_key}, {}) for each in asks]

    async def run() -> list[Reply | None]:
        batches = Batches(answer)
        first = asyncio.ensure_future(batches.answer(ask("0")))
        await asyncio.to_thread(first_is_in.wait, 10)
        rest = [asyncio.ensure_future(batches.answer(ask(str(number)))) for number in range(1, 251)]
        rest[7].cancel()  # a client that leaves
        await asyncio.sleep(0)
        go_on.set()
        return await asyncio.gather(first, *(each for number, each in enumerate(rest) if number != 7))

    replies = asyncio.run(run())
    assert [reply.body["key"] for reply in replies if reply] == [str(n) for n in range(251) if n != 8]
    assert sizes == [1, 100, 100, 49]


def test_goes_on_after_a_batch_that_failed() -> None:
    def answer(asks: Sequence[Ask]) -> list[Reply | None]:
        if asks[0].raw_key == "bad":
            raise RuntimeError("a bug")
        return [Reply(202, {}, {})]

    async def run() -> list[Reply | None]:
        batches = Batches(answer)
        return [await batches.answer(ask("bad")), await batches.answer(ask("good"))]

    assert asyncio.run(run()) == [None, Reply(202, {}, {})]


def test_goes_on_although_the_connection_cannot_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "connection", Unclosable)

    def answer(asks: Sequence[Ask]) -> list[Reply | None]:
        if asks[0].raw_key == "bad":
            raise RuntimeError("a bug")
        return [Reply(202, {}, {})]

    async def run() -> list[Reply | None]:
        batches = Batches(answer)
        return [await asyncio.wait_for(batches.answer(ask(key)), 10) for key in ("bad", "good")]

    assert asyncio.run(run()) == [None, Reply(202, {}, {})]


def test_answers_whichever_event_loop_asked() -> None:
    batches = Batches(lambda asks: [Reply(202, {}, {}) for _ask in asks])

    async def run() -> Reply | None:
        return await asyncio.wait_for(batches.answer(ask("key")), 10)

    assert [asyncio.run(run()) for _ in range(3)] == [Reply(202, {}, {})] * 3


def test_is_not_ended_by_callers_whose_event_loop_is_gone() -> None:
    first_is_in, go_on = threading.Event(), threading.Event()

    def answer(asks: Sequence[Ask]) -> list[Reply | None]:
        first_is_in.set()
        go_on.wait(10)
        return [Reply(202, {}, {}) for _ask in asks]

    batches = Batches(answer)

    async def leave() -> None:
        waiting = asyncio.ensure_future(batches.answer(ask("gone")))
        await asyncio.to_thread(first_is_in.wait, 10)
        waiting.cancel()

    async def run() -> Reply | None:
        go_on.set()
        return await asyncio.wait_for(batches.answer(ask("here")), 10)

    asyncio.run(leave())
    assert asyncio.run(run()) == Reply(202, {}, {})
