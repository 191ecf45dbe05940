"""One request and its answer, with retries where they are safe. Does no I/O, so both clients share it.

A flow yields what is to be done next, a Request or a Pause, and is sent what came of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import httpx

from pilot_client._errors import (
    AnswerLost,
    ConnectionFailed,
    PilotError,
    RateLimited,
    Refusal,
    StillRunning,
    refusal_of,
)

T = TypeVar("T")
# The request was never written to a connection.
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
# What the network does. Other errors of httpx, such as an address without https://, are mistakes in a program.
NETWORK = (
    httpx.TimeoutException,
    httpx.NetworkError,
    httpx.ProxyError,
    httpx.RemoteProtocolError,
    httpx.DecodingError,
)
MAY_PASS = {502, 503, 504}


@dataclass(frozen=True)
class Request:
    """What is asked for. `repeatable`: whether doing it twice is as good as doing it once."""

    method: str
    path: str
    repeatable: bool = False
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Mapping[str, Any] | None = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pause:
    """Wait for so many seconds."""

    seconds: float


Step = Request | Pause
Outcome = httpx.Response | httpx.RequestError | None
Flow = Generator[Step, Outcome, T]


@dataclass(frozen=True)
class Retrying:
    """How often a request is made at most, and the seconds between: doubled each time, and never the same twice.

    When the server says how long to wait, that counts; if it is more than `longest`, the error is raised at once.
    """

    attempts: int = 5
    first: float = 0.5
    longest: float = 30.0

    def wait(self, trouble: PilotError, *, attempt: int) -> float | None:
        """Seconds to the next attempt after the `attempt`th; None when there is none."""
        if attempt >= self.attempts:
            return None
        told = trouble.retry_after if isinstance(trouble, Refusal) else None
        if told is not None:
            return told if told <= self.longest else None
        return min(self.first * 2.0 ** (attempt - 1), self.longest) * random.uniform(0.5, 1)


@dataclass(frozen=True)
class Page(Generic[T]):
    """A part of a list. `next_cursor` is None on the last one."""

    items: list[T]
    next_cursor: str | None


@dataclass(frozen=True)
class Listing(Generic[T]):
    """A list that is fetched page by page."""

    request: Request
    read: Callable[[Any], Page[T]]
    retrying: Retrying

    def page(self, cursor: str | None) -> Flow[Page[T]]:
        """The page at `cursor`; the first one unless given."""
        params = {**self.request.params, **({"cursor": cursor} if cursor else {})}
        answer = yield from exchange(replace(self.request, params=params), self.retrying)
        return self.read(answer.json())


def exchange(request: Request, retrying: Retrying) -> Flow[httpx.Response]:
    """The answer to a request, once it is a success. Raises ConnectionFailed, AnswerLost or a Refusal."""
    attempt = 1
    while True:
        outcome = yield request
        if isinstance(outcome, httpx.Response) and outcome.is_success:
            return outcome
        trouble = _trouble(outcome)
        wait = retrying.wait(trouble, attempt=attempt) if _may_repeat(request, trouble) else None
        if wait is None:
            raise trouble
        yield Pause(wait)
        attempt += 1


def _trouble(outcome: Outcome) -> PilotError:
    if isinstance(outcome, httpx.Response):
        return refusal_of(outcome)
    kind = ConnectionFailed if isinstance(outcome, NEVER_SENT) else AnswerLost
    trouble = kind(str(outcome) or type(outcome).__name__)
    trouble.__cause__ = outcome
    return trouble


def _may_repeat(request: Request, trouble: PilotError) -> bool:
    """A request that was surely not carried out may always be made again; others only when that does no harm."""
    if isinstance(trouble, (ConnectionFailed, RateLimited)):
        return True
    passing = isinstance(trouble, Refusal) and trouble.status in MAY_PASS
    return request.repeatable and (passing or isinstance(trouble, (AnswerLost, StillRunning)))
