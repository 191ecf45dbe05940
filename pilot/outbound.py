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

import aiohttp
import certifi
from aiohttp.abc import AbstractResolver

from pilot import ssrf

CONNECT_SECONDS = 5.0
KEEPALIVE_SECONDS = 15.0
# Names that are slow to resolve each hold a thread; there must be enough for the others.
RESOLVING_THREADS = 64
FAILURES = (aiohttp.ClientError, OSError, ValueError)
HEADERS = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "Pilot"}


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
        self._session = aiohttp.ClientSession(
            connector=ssrf.connector(
                policy,
                resolver=resolver,
                limit=connections,
                ssl=_ssl_context(),
                keepalive_timeout=KEEPALIVE_SECONDS,
            ),
            headers=HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

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
                status, names, body = await self._exchange(method, url, headers, content, body_limit)
        except ssrf.Refused as error:
            reason = "The address may not be called."
            raise Unanswered("refused", reason, seconds=time.monotonic() - started) from error
        except FAILURES as error:
            raise _failure(error, time.monotonic() - started) from error
        return Answer(status, names, body, time.monotonic() - started)

    async def aclose(self) -> None:
        """Closes every connection."""
        await self._session.close()
        self._resolving.shutdown(wait=False, cancel_futures=True)

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes, body_limit: int
    ) -> tuple[int, Mapping[str, str], bytes]:
        # Waiting for a free connection counts towards the whole: it says nothing about the other side.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        asking = self._session.request(
            method, url, headers=headers, data=content, timeout=timeout, allow_redirects=False
        )
        async with asking as response:
            body = await _beginning(response, body_limit)
        return response.status, {name.lower(): value for name, value in response.headers.items()}, body


async def _beginning(response: aiohttp.ClientResponse, limit: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) >= limit:
            break
    return bytes(body[:limit])


def _failure(error: Exception, seconds: float) -> Unanswered:
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return Unanswered("tls", f"No secure connection: {str(error)[:200]}", seconds=seconds)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Unanswered("unreachable", "The name of the host could not be resolved.", seconds=seconds)
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return Unanswered("unreachable", "No connection could be made.", seconds=seconds)
    if isinstance(error, TimeoutError):
        return Unanswered("timeout", f"No answer within {seconds:.0f} s.", seconds=seconds)
    return Unanswered("cut", f"The connection was cut: {type(error).__name__}.", seconds=seconds)


@cache
def _ssl_context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certifi.where())
