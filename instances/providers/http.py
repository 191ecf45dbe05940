"""Performs providers' calls: the only place that touches the network, and that gives a lost answer its meaning."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import aiohttp
import certifi
import structlog
import uvloop

from instances.providers import bounds
from instances.providers.base import (
    INTERNAL,
    MISCONFIGURED,
    NO_ANSWER,
    REJECTED_PAYLOAD,
    UNREACHABLE,
    Answer,
    Call,
    Outcome,
    ProviderError,
    Request,
    Upload,
)

T = TypeVar("T")
Body = bytes | aiohttp.FormData | None
log = structlog.get_logger(__name__)

CONNECT_TIMEOUT = 5.0
BODY_LIMIT = 10 * 1024 * 1024
# Node closes an idle connection after 5 s. A send on one that is just being closed would be a lost answer.
KEEPALIVE_SECONDS = 2.0

# What surely happened before a byte of the request left.
NEVER_LEFT = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
    aiohttp.NonHttpUrlClientError,
)
FAILURES = (aiohttp.ClientError, OSError, TimeoutError)
JSON = {"Content-Type": "application/json"}
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class _BodyTooLarge(OSError):
    """The answer is longer than any provider's should be."""


class AsyncHttp:
    """A pool of connections for the running event loop. Follows no redirect, repeats no POST, keeps no cookie,
    ignores proxy settings."""

    def __init__(self, *, connections: int = 100) -> None:
        connector = aiohttp.TCPConnector(
            limit=connections, keepalive_timeout=KEEPALIVE_SECONDS, ssl=_ssl_context()
        )
        self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    async def perform(self, call: Call[T], *, leave_within: float | None = None) -> T:
        """Makes the request and reads the answer. `call.request.timeout` bounds the whole exchange,
        `leave_within` (seconds, too) the time until the request leaves.

        Raises ProviderError, whatever goes wrong: what `call.read` says of the answer; or, without one, that the
        request surely did not leave (retry; rejected or instance_down where it cannot leave as it is) or may have
        left (unknown when the call sends, retry otherwise).
        """
        if call.fault:
            raise call.fault
        if call.known:
            return _understand(call, call.known)
        started = time.monotonic()
        try:
            answer = await self._ask(call, leave_within)
        except ProviderError as error:
            cause = type(error.__cause__ or error).__name__
            _log(logging.WARNING, call.request, started, code=error.code, error=cause)
            raise
        _log(logging.DEBUG, call.request, started, status=answer.status)
        return _understand(call, answer)

    async def aclose(self) -> None:
        """Closes every connection."""
        await self._session.close()

    async def _ask(self, call: Call[T], leave_within: float | None) -> Answer:
        headers, body = _headers(call.request), _body(call.request)
        try:
            async with asyncio.timeout(call.request.timeout):
                return await self._exchange(
                    call.request, headers, body, _timeouts(call.request, leave_within)
                )
        except FAILURES as error:
            raise _failure(error, sends=call.sends) from error
        except Exception as error:
            raise _fault(error, sends=call.sends) from error

    async def _exchange(
        self, request: Request, headers: Mapping[str, str], body: Body, timeout: aiohttp.ClientTimeout
    ) -> Answer:
        asking = self._session.request(
            request.method, request.url, headers=headers, data=body, timeout=timeout, allow_redirects=False
        )
        async with asking as response:
            read = await _read(response)
        names = {name.lower(): value for name, value in response.headers.items()}
        return Answer(status=response.status, body=_parse(read), headers=names)


def perform(call: Call[T]) -> T:
    """`AsyncHttp.perform` for code that blocks: pairing, health checks, commands.

    It has a loop and a connection of its own. A blocking socket cannot bound a whole exchange, and one way of
    performing a call means one meaning of every failure.
    """
    return _run(_perform_alone(call))


def perform_all(calls: Sequence[Call[T]], *, within: float | None = None) -> list[T | ProviderError]:
    """Performs several calls at once, for code that blocks. Returns, in their order, what each gave or raised.

    None takes longer than `within` seconds, where given, nor than its own timeout.
    """
    if within is not None:
        calls = [_hurried(call, within) for call in calls]
    return _run(_perform_together(calls))


async def _perform_alone(call: Call[T]) -> T:
    http = AsyncHttp(connections=1)
    try:
        return await http.perform(call)
    finally:
        await http.aclose()


async def _perform_together(calls: Sequence[Call[T]]) -> list[T | ProviderError]:
    http = AsyncHttp(connections=max(len(calls), 1))

    async def attempt(call: Call[T]) -> T | ProviderError:
        try:
            return await http.perform(call)
        except ProviderError as error:
            return error

    try:
        return await asyncio.gather(*(attempt(call) for call in calls))
    finally:
        await http.aclose()


def _hurried(call: Call[T], seconds: float) -> Call[T]:
    return replace(call, request=replace(call.request, timeout=min(call.request.timeout, seconds)))


def _run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@cache
def _ssl_context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certifi.where())


def _headers(request: Request) -> Mapping[str, str]:
    """Raises ProviderError for what cannot leave, by fault of the account's setup."""
    if not all(value.isascii() and value.isprintable() for value in request.headers.values()):
        detail = "The key has characters that cannot be sent."
        raise ProviderError(MISCONFIGURED, detail, outcome=Outcome.INSTANCE_DOWN)
    return request.headers if request.json is None else {**request.headers, **JSON}


def _body(request: Request) -> Body:
    """Raises ProviderError for what cannot leave, by fault of the message."""
    if request.upload:
        return _form(request.upload)
    try:
        return None if request.json is None else _ENCODER.encode(request.json).encode()
    except Exception as error:
        detail = "The message cannot be written as JSON."
        raise ProviderError(REJECTED_PAYLOAD, detail, outcome=Outcome.REJECTED) from error


def _form(upload: Upload) -> aiohttp.FormData:
    form = aiohttp.FormData(upload.fields)
    form.add_field("file", upload.data, filename=upload.name, content_type=upload.mime_type)
    return form


def _timeouts(request: Request, leave_within: float | None) -> aiohttp.ClientTimeout:
    """Connecting, with the wait for a free connection, must fail well before the whole: only then is it known
    that nothing has left. A request that must not leave late has no more time for it than that."""
    connecting = min(CONNECT_TIMEOUT, request.timeout / 2)
    if leave_within is not None:
        connecting = min(connecting, max(leave_within, 0.001))
    return aiohttp.ClientTimeout(total=None, connect=connecting)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > BODY_LIMIT:
            raise _BodyTooLarge(f"the answer is longer than {BODY_LIMIT} bytes")
    return bytes(body)


def _parse(body: bytes) -> Any:
    """JSON that can be stored; None for what is none."""
    try:
        return bounds.storable(json.loads(body))
    except (ValueError, RecursionError):
        return None


def _understand(call: Call[T], answer: Answer) -> T:
    try:
        return call.read(answer)
    except ProviderError:
        raise
    except Exception as error:
        raise _fault(error, sends=call.sends) from error


def _failure(error: Exception, *, sends: bool) -> ProviderError:
    if _never_left(error):
        return _unreachable()
    return ProviderError(
        NO_ANSWER, "The provider gave no answer that could be read.", outcome=_after_leaving(sends)
    )


def _fault(error: Exception, *, sends: bool) -> ProviderError:
    """A bug of ours, which must not be taken for one of the provider's."""
    log.error("provider.fault", exc_info=error)
    return ProviderError(INTERNAL, type(error).__name__, outcome=_after_leaving(sends))


def _unreachable() -> ProviderError:
    return ProviderError(UNREACHABLE, "The provider could not be reached.", outcome=Outcome.RETRY)


def _after_leaving(sends: bool) -> Outcome:
    return Outcome.UNKNOWN if sends else Outcome.RETRY


def _never_left(error: Exception) -> bool:
    return isinstance(error, NEVER_LEFT)


def _log(level: int, request: Request, started: float, **result: Any) -> None:
    """One line for each call, without headers, query or body."""
    log.log(
        level,
        "provider.call",
        method=request.method,
        url=request.url.partition("?")[0],
        seconds=round(time.monotonic() - started, 3),
        **result,
    )
