"""Performs providers' calls: the only place that touches the network, and that gives a lost answer its meaning."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import aiohttp
import httpx
import structlog
from httpx_aiohttp import AiohttpTransport

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
)

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
FAILURES = (httpx.RequestError, aiohttp.ClientError, OSError, TimeoutError)


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

        Raises ProviderError, whatever goes wrong: what `call.read` says of the answer; or, without one, that the
        request surely did not leave (retry; rejected or instance_down where it cannot leave as it is) or may have
        left (unknown when the call sends, retry otherwise).
        """
        started = time.monotonic()
        try:
            answer = await self._ask(call)
        except ProviderError as error:
            cause = type(error.__cause__ or error).__name__
            _log(logging.WARNING, call.request, started, code=error.code, error=cause)
            raise
        _log(logging.DEBUG, call.request, started, status=answer.status)
        return _understand(call, answer)

    async def aclose(self) -> None:
        """Closes every connection."""
        await self._client.aclose()

    async def _ask(self, call: Call[T]) -> Answer:
        request = self._prepare(call.request)
        try:
            async with asyncio.timeout(call.request.timeout):
                return await self._exchange(request)
        except FAILURES as error:
            raise _failure(error, sends=call.sends) from error
        except Exception as error:
            raise _fault(error, sends=call.sends) from error

    def _prepare(self, request: Request) -> httpx.Request:
        """Raises ProviderError for what cannot leave as it is: by fault of the account's setup or of the message."""
        if not all(value.isascii() and value.isprintable() for value in request.headers.values()):
            detail = "The key has characters that cannot be sent."
            raise ProviderError(MISCONFIGURED, detail, outcome=Outcome.INSTANCE_DOWN)
        try:
            url = httpx.URL(request.url)
        except Exception as error:
            raise _unreachable() from error
        headers, timeout = dict(request.headers), _timeouts(request)
        try:
            return self._client.build_request(
                request.method, url, headers=headers, json=request.json, timeout=timeout
            )
        except Exception as error:
            detail = "The message cannot be written as JSON."
            raise ProviderError(REJECTED_PAYLOAD, detail, outcome=Outcome.REJECTED) from error

    async def _exchange(self, request: httpx.Request) -> Answer:
        response = await self._client.send(request, stream=True)
        try:
            body = await _read(response)
        finally:
            await response.aclose()
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(status=response.status_code, body=_parse(body), headers=headers)


def perform(call: Call[T]) -> T:
    """`AsyncHttp.perform` for code that blocks: pairing, health checks, commands.

    It has a loop and a connection of its own. A blocking socket cannot bound a whole exchange, and one way of
    performing a call means one meaning of every failure.
    """
    return asyncio.run(_perform_alone(call))


def perform_all(calls: Sequence[Call[T]], *, within: float | None = None) -> list[T | ProviderError]:
    """Performs several calls at once, for code that blocks. Returns, in their order, what each gave or raised.

    None takes longer than `within` seconds, where given, nor than its own timeout.
    """
    if within is not None:
        calls = [_hurried(call, within) for call in calls]
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


def _hurried(call: Call[T], seconds: float) -> Call[T]:
    return replace(call, request=replace(call.request, timeout=min(call.request.timeout, seconds)))


@cache
def _ssl_context() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


def _timeouts(request: Request) -> httpx.Timeout:
    """Connecting, with the wait for a free connection, must fail well before the whole: only then is it known
    that nothing has left. A request that must not leave late has no more time for it than that."""
    connecting = min(CONNECT_TIMEOUT, request.timeout / 2)
    if request.leave_within is not None:
        connecting = min(connecting, max(request.leave_within, 0.001))
    return httpx.Timeout(request.timeout, connect=connecting, pool=connecting)


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
    return isinstance(error.__cause__ or error, NEVER_LEFT)


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
