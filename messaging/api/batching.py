"""Requests that come in together are accepted together: by one thread, with a handful of statements for all of them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import structlog
from django.db import DataError, IntegrityError, connection
from django.utils import timezone, translation
from rest_framework.exceptions import APIException, Throttled

from accounts import keys
from accounts.api import limits
from accounts.models import ApiKey
from messaging.accepting import Accepted, Answer, Order, accept, prepare
from messaging.api.orders import answer_of, order_of
from messaging.api.views import MessagesView
from pilot.buckets import Drawn
from pilot.errors import RETRY_AFTER, answer_to, unavailable
from pilot.parsing import parse_object

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


Waiting = tuple[Ask, "asyncio.Future[Reply | None]"]


class Batches:
    """A thread that answers whatever came in while it answered what came in before."""

    def __init__(self, answer_all: Callable[[Sequence[Ask]], list[Reply | None]]) -> None:
        self._answer_all = answer_all
        self._waiting: SimpleQueue[Waiting] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def answer(self, ask: Ask) -> Reply | None:
        """The reply; None when the request must go the long way. All callers share one event loop."""
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=[loop], name="accepting", daemon=True)
            self._thread.start()
        future: asyncio.Future[Reply | None] = loop.create_future()
        self._waiting.put((ask, future))
        return await future

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            batch = self._next()
            replies = self._replies([ask for ask, _future in batch])
            futures = [future for _ask, future in batch]
            loop.call_soon_threadsafe(_resolve, list(zip(futures, replies, strict=True)))

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
            connection.close()
            return [None] * len(asks)


def _resolve(pairs: Sequence[tuple[asyncio.Future[Reply | None], Reply | None]]) -> None:
    for future, reply in pairs:
        if not future.done():  # the client left
            future.set_result(reply)


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
        connection.close()
        return [
            _unavailable(ask, error) if place in orders else replies[place] for place, ask in enumerate(asks)
        ]
    for place, answer in zip(orders, answers, strict=True):
        replies[place] = _reply(asks[place], answer)
    return replies


def _refused(asks: Sequence[Ask], known: Mapping[str, ApiKey]) -> list[Reply | None]:
    """Counts each request against the limits of its key: 429 for those that are too many, None for the others."""
    owners = [known.get(ask.raw_key) for ask in asks]
    drawn = limits.draw(Counter(key for key in owners if key))
    left = {key: each.granted for key, each in drawn.items()}
    return [_counted(ask, key, drawn, left) for ask, key in zip(asks, owners, strict=True)]


def _counted(
    ask: Ask, key: ApiKey | None, drawn: Mapping[ApiKey, Drawn], left: dict[ApiKey, int]
) -> Reply | None:
    if key is None or key not in drawn:
        return None
    ask.drawn = drawn[key]
    left[key] -= 1
    return _too_many(ask, drawn[key]) if left[key] < 0 else None


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
    with translation.override(ask.language):
        return Reply(503, unavailable(error, ask.request_id), {"Retry-After": RETRY_AFTER})
