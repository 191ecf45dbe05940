"""Performs providers' calls: the only place that touches the network, and that gives a lost answer its meaning."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

import aiohttp
import httpx
import structlog
from httpx_aiohttp import AiohttpTransport

from instances.providers import bounds
from instances.providers.base import NO_ANSWER, UNREACHABLE, Answer, Call, Outcome, ProviderError, Request

T = TypeVar("T")
log = structlog.get_logger(__name__)

CONNECT_TIMEOUT = 5.0
BODY_LIMIT = 10 * 1024 * 1024
# Node closes an idle connection after 5 s. A send on one that is just being closed would be a lost answer.
KEEPALIVE_SECONDS = 2.0

# What surely happened before a byte of the request left. By aiohttp's names: the transport calls every lost
# connection, even one lost after the request was sent, a ConnectTimeout.
NEVER_LEFT = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
    aiohttp.NonHttpUrlClientError,
)
FAILURES = (httpx.RequestError, httpx.InvalidURL, aiohttp.ClientError, OSError, TimeoutError)


class _BodyTooLarge(OSError):
    """The answer is longer than any provider's should be."""


class AsyncHttp:
    """A pool of connections for one event loop. Follows no redirect, repeats no POST, ignores proxy settings."""

    def __init__(self, *, connections: int = 100) -> None:
        limits = httpx.Limits(max_connections=connections, keepalive_expiry=KEEPALIVE_SECONDS)
        transport = AiohttpTransport(verify=_ssl_context(), trust_env=False, limits=limits)
        self._client = httpx.AsyncClient(transport=transport, trust_env=False, follow_redirects=False)

    async def perform(self, call: Call[T]) -> T:
        """Makes the request and reads the answer. `call.request.timeout` bounds the whole exchange.

        Raises ProviderError: what `call.read` says of the answer, or, without one, that the request surely did
        not leave (retry) or may have left (unknown when the call sends, retry otherwise).
        """
        started = time.monotonic()
        try:
            async with asyncio.timeout(call.request.timeout):
                answer = await self._exchange(call.request)
        except FAILURES as error:
            failure = _failure(error, sends=call.sends)
            _log(logging.WARNING, call.request, started, code=failure.code, error=type(error).__name__)
            raise failure from error
        _log(logging.DEBUG, call.request, started, status=answer.status)
        return call.read(answer)

    async def aclose(self) -> None:
        """Closes every connection."""
        await self._client.aclose()

    async def _exchange(self, request: Request) -> Answer:
        async with self._client.stream(
            request.method,
            request.url,
            headers=dict(request.headers),
            json=request.json,
            timeout=_timeouts(request.timeout),
        ) as response:
            body = await _read(response)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(status=response.status_code, body=_parse(body), headers=headers)


def perform(call: Call[T]) -> T:
    """`AsyncHttp.perform` for code that blocks: pairing, health checks, commands.

    It has a loop and a connection of its own. A blocking socket cannot bound a whole exchange, and one way of
    performing a call means one meaning of every failure.
    """
    return asyncio.run(_perform_alone(call))


def perform_all(calls: Sequence[Call[T]]) -> list[T | ProviderError]:
    """Performs several calls at once, for code that blocks. Returns, in their order, what each gave or raised."""
    return asyncio.run(_perform_together(calls))


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


@cache
def _ssl_context() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


def _timeouts(whole: float) -> httpx.Timeout:
    """Connecting, with the wait for a free connection, must fail well before the whole: only then is it known
    that nothing has left."""
    connecting = min(CONNECT_TIMEOUT, whole / 2)
    return httpx.Timeout(whole, connect=connecting, pool=connecting)


async def _read(response: httpx.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
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


def _failure(error: Exception, *, sends: bool) -> ProviderError:
    if _never_left(error):
        return ProviderError(UNREACHABLE, "The provider could not be reached.", outcome=Outcome.RETRY)
    outcome = Outcome.UNKNOWN if sends else Outcome.RETRY
    return ProviderError(NO_ANSWER, "The provider gave no answer that could be read.", outcome=outcome)


def _never_left(error: Exception) -> bool:
    return isinstance(error.__cause__ or error, NEVER_LEFT) or isinstance(error, httpx.InvalidURL)


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
