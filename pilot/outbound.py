"""HTTP to addresses that customers choose: guarded (pilot/ssrf.py), bounded in time and size, and remembering nothing.

No redirect is followed, no proxy setting of the environment is used, no cookie is kept. Media of customers' messages
can be fetched by it as well as their webhooks are called.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from http.cookiejar import DefaultCookiePolicy

import aiohttp
import httpx
from aiohttp.abc import AbstractResolver
from httpx_aiohttp import AiohttpTransport

from pilot import ssrf

CONNECT_SECONDS = 5.0
KEEPALIVE_SECONDS = 15.0
# Names that are slow to resolve each hold a thread; there must be enough for the others.
RESOLVING_THREADS = 64
FAILURES = (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it came: header names in lower case, and the beginning of the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float


class Unanswered(Exception):
    """There is no answer. `code` is refused, unreachable, timeout, tls or cut; `reason` a sentence."""

    def __init__(self, code: str, reason: str, *, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.seconds = seconds


class Outbound:
    """A pool of guarded connections for one event loop; to be made inside it."""

    def __init__(
        self, policy: ssrf.Policy, *, connections: int = 100, resolver: AbstractResolver | None = None
    ) -> None:
        self._resolving = ThreadPoolExecutor(RESOLVING_THREADS, thread_name_prefix="outbound-resolves")
        asyncio.get_running_loop().set_default_executor(self._resolving)
        session = aiohttp.ClientSession(
            connector=ssrf.connector(
                policy,
                resolver=resolver,
                limit=connections,
                ssl=_ssl_context(),
                keepalive_timeout=KEEPALIVE_SECONDS,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        self._client = httpx.AsyncClient(
            transport=AiohttpTransport(client=session),
            trust_env=False,
            follow_redirects=False,
            headers={"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "Pilot"},
        )
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    async def exchange(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes = b"",
        timeout: float,
        body_limit: int,
    ) -> Answer:
        """Makes one request. `timeout` seconds bound the whole; of the body the first `body_limit` bytes are read.

        Raises Unanswered, whatever goes wrong.
        """
        started = time.monotonic()
        try:
            async with asyncio.timeout(timeout):
                return await self._exchange(method, url, headers, content, timeout, body_limit, started)
        except TimeoutError:
            raise Unanswered("timeout", f"No answer within {timeout:g} s.", seconds=timeout) from None
        except ssrf.Refused as error:
            reason = "The address may not be called."
            raise Unanswered("refused", reason, seconds=time.monotonic() - started) from error
        except FAILURES as error:
            raise _failure(error, time.monotonic() - started) from error

    async def aclose(self) -> None:
        """Closes every connection."""
        await self._client.aclose()
        self._resolving.shutdown(wait=False, cancel_futures=True)

    async def _exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: bytes,
        timeout: float,
        body_limit: int,
        started: float,
    ) -> Answer:
        connecting = min(CONNECT_SECONDS, timeout)
        # Waiting for a free connection counts as the whole: it says nothing about the other side.
        limits = httpx.Timeout(timeout, connect=connecting, pool=timeout)
        request = self._client.build_request(
            method, url, headers=dict(headers), content=content, timeout=limits
        )
        response = await self._client.send(request, stream=True)
        try:
            body = await _beginning(response, body_limit)
        finally:
            await response.aclose()
        names = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, names, body, time.monotonic() - started)


async def _beginning(response: httpx.Response, limit: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) >= limit:
            break
    return bytes(body[:limit])


def _failure(error: Exception, seconds: float) -> Unanswered:
    cause = error.__cause__ or error
    if isinstance(cause, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return Unanswered("tls", f"No secure connection: {_short(cause)}", seconds=seconds)
    if isinstance(cause, aiohttp.ClientConnectorDNSError):
        return Unanswered("unreachable", "The name of the host could not be resolved.", seconds=seconds)
    if isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return Unanswered("unreachable", "No connection could be made.", seconds=seconds)
    if isinstance(
        cause, TimeoutError
    ):  # not by httpx's names: the transport calls a cut connection a timeout
        return Unanswered("timeout", "No answer in time.", seconds=seconds)
    return Unanswered("cut", f"The connection was cut: {type(cause).__name__}.", seconds=seconds)


def _short(error: BaseException) -> str:
    return str(error)[:200]


@cache
def _ssl_context() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)
