"""Requests that come in together are accepted together: by one thread, with a handful of statements for all of them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue
from typing import Any, TypeAlias

import structlog
from django.db import DataError, IntegrityError, connection
from django.utils import timezone, translation
from psycopg.errors import DeadlockDetected
from rest_framework.exceptions import APIException, Throttled
from structlog.contextvars import bound_contextvars

from accounts import keys
from accounts.api import limits
from accounts.models import ApiKey
from messaging.accepting import Accepted, Answer, Order, accept, prepare
from messaging.api.orders import answer_of, order_of
from messaging.api.views import MessagesView
from pilot.buckets import Drawn
from pilot.errors import RETRY_AFTER, unavailable
from pilot.parsing import parse_object
from pilot.refusing import answer_to

log = structlog.get_logger(__name__)

AT_ONCE = 100


@dataclass(slots=True)
class Ask:
    """An ordinary request. `drawn` is filled in once it was counted against its key's limits."""

    raw_key: str
    body: bytes
    idempotency_key: str | None
    request_id: str
    language: str
    drawn: Drawn | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered: status, body and the headers that differ from answer to answer."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str]


Future: TypeAlias = "asyncio.Future[Reply | None]"
Waiting: TypeAlias = tuple[Ask, Future]


class Batches:
    """A thread that answers whatever came in while it answered what came in before."""

    def __init__(self, answer_all: Callable[[Sequence[Ask]], list[Reply | None]]) -> None:
        self._answer_all = answer_all
        self._waiting: SimpleQueue[Waiting] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def answer(self, ask: Ask) -> Reply | None:
        """The reply; None when the request must go the long way."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="accepting", daemon=True)
            self._thread.start()
        future: Future = asyncio.get_running_loop().create_future()
        self._waiting.put((ask, future))
        return await future

    def _run(self) -> None:
        """Nothing may end it: whoever asked would wait for ever, and so would all who ask later."""
        while True:
            batch = self._next()
            replies = self._replies([ask for ask, _future in batch])
            _hand_over(dict(zip([future for _ask, future in batch], replies, strict=True)))

    def _next(self) -> list[Waiting]:
        batch = [self._waiting.get()]
        while len(batch) < AT_ONCE and not self._waiting.empty():
            batch.append(self._waiting.get())
        return batch

    def _replies(self, asks: Sequence[Ask]) -> list[Reply | None]:
        try:
            return self._answer_all(asks)
        except Exception:
            # Nothing was written: answer_all() itself answers for what it writes.
            log.exception("batching.failed", requests=len(asks))
            _disconnect()
            return [None] * len(asks)


def _hand_over(replies: Mapping[Future, Reply | None]) -> None:
    """To the event loops that wait for them: one, as a rule."""
    for loop in {future.get_loop() for future in replies}:
        theirs = {future: reply for future, reply in replies.items() if future.get_loop() is loop}
        try:
            loop.call_soon_threadsafe(_resolve, theirs)
        except RuntimeError:
            log.warning("batching.nobody_waits", requests=len(theirs))  # the loop is closed


def _resolve(replies: Mapping[Future, Reply | None]) -> None:
    for future, reply in replies.items():
        if not future.done():  # the client left
            future.set_result(reply)


def _disconnect() -> None:
    """The next statement begins with a new connection. Raises nothing: what was written before must be answered for."""
    try:
        connection.close()
    except Exception:
        log.exception("batching.not_disconnected")


# --- a batch ----------------------------------------------------------------------------------------------


def answer_all(asks: Sequence[Ask]) -> list[Reply | None]:
    """A reply for each request, in their order; None for what must go the long way.

    When it raises, nothing was written.
    """
    now = timezone.now()
    known = keys.authenticate_all({ask.raw_key for ask in asks}, now=now)
    replies = _refused(asks, known)
    orders = {
        place: order
        for place, ask in enumerate(asks)
        if not replies[place] and (order := _order(ask, known.get(ask.raw_key)))
    }
    prepared = prepare(list(orders.values()), now=now)
    try:
        answers = accept(prepared)
    except (DataError, IntegrityError):
        return replies  # surely not written: one by one, it will be seen whose fault it is
    except Exception as error:
        if isinstance(error.__cause__, DeadlockDetected):
            return replies
        _disconnect()
        return [
            _unavailable(ask, error) if place in orders else replies[place] for place, ask in enumerate(asks)
        ]
    for place, answer in zip(orders, answers, strict=True):
        replies[place] = _reply(asks[place], answer)
    return replies


def _refused(asks: Sequence[Ask], known: Mapping[str, ApiKey]) -> list[Reply | None]:
    """Counts each request against the limits of its key: 429 for those that are too many, None for the others."""
    numbers = Counter(ask.raw_key for ask in asks if ask.raw_key in known)
    drawn = limits.draw([(known[raw_key], number) for raw_key, number in numbers.items()])
    if not drawn:
        return [None] * len(asks)
    turns = {raw_key: (each, count()) for raw_key, each in zip(numbers, drawn, strict=True)}
    return [_counted(ask, *turns[ask.raw_key]) if ask.raw_key in turns else None for ask in asks]


def _counted(ask: Ask, drawn: Drawn, turn: Iterator[int]) -> Reply | None:
    ask.drawn = drawn
    return None if next(turn) < drawn.granted else _too_many(ask, drawn)


def _too_many(ask: Ask, drawn: Drawn) -> Reply:
    with translation.override(ask.language):
        refusal = answer_to(Throttled(drawn.wait()), ask.request_id)
    return Reply(429, refusal.data, {"Retry-After": refusal["Retry-After"]})


def _order(ask: Ask, key: ApiKey | None) -> Order | None:
    if key is None or MessagesView.write_scope not in key.scopes:
        return None
    try:
        return order_of(key=key, body=parse_object(ask.body), idempotency_key=ask.idempotency_key)
    except APIException:
        return None


def _reply(ask: Ask, answer: Answer) -> Reply | None:
    if not isinstance(answer, Accepted) or answer.replayed:
        return None  # asking again is safe with the same Idempotency-Key
    try:
        with translation.override(ask.language):
            body, headers = answer_of(answer)
    except Exception as error:  # a bug; the message is accepted, so the long way would accept it twice
        return _unavailable(ask, error)
    return Reply(202, body, headers)


def _unavailable(ask: Ask, error: Exception) -> Reply:
    with translation.override(ask.language), bound_contextvars(request_id=ask.request_id):
        return Reply(503, unavailable(error, ask.request_id), {"Retry-After": RETRY_AFTER})
