"""Delivers webhooks over HTTP with the retry table of the emulated provider."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import httpx
from httpx_aiohttp import AiohttpTransport

from sandbox.faults import Faults, Target

CONNECTIONS = 256


@dataclass(frozen=True)
class RetryPolicy:
    """`delays[n]` is the pause in seconds after failed attempt n+1; a status in `final` is never retried."""

    delays: tuple[float, ...]
    final: frozenset[int]
    jitter: float
    timeout: float


def unnoticed() -> None:
    """Most events are nobody's business once delivered."""


@dataclass(frozen=True)
class Delivery:
    """One event, made once: every retry carries the same bytes and the same headers. `taken` is called when
    the receiver answers with a 2xx."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    target: Target
    taken: Callable[[], None] = unnoticed


class WebhookSender:
    """Deliveries run concurrently and keep no order. Retries live in memory only, as in the real servers."""

    def __init__(
        self,
        *,
        faults: Faults,
        policy: RetryPolicy,
        scale: float,
        transport: httpx.AsyncBaseTransport | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._faults = faults
        self._policy = policy
        self._scale = scale
        self._pause = pause
        # A bare transport: no redirects, cookies or environment proxies between us and the receiver.
        # aiohttp's costs a third of the CPU of httpx's own when hundreds are in flight.
        self._transport = transport or AiohttpTransport(limits=httpx.Limits(max_connections=CONNECTIONS))

    async def deliver(self, delivery: Delivery) -> None:
        """Return once delivered, refused for good, or given up."""
        take, target = self._faults.take, delivery.target
        if take("webhooks_lost", target):
            return
        if late := take("webhooks_late", target):
            await asyncio.sleep(late.params["seconds"])
        if reordered := take("webhooks_reordered", target):
            await asyncio.sleep(reordered.mirrored_delay())
        copies = 2 if take("webhooks_doubled", target) else 1
        await asyncio.gather(*(self._attempt(delivery) for _ in range(copies)))

    async def _attempt(self, delivery: Delivery) -> None:
        if await self._settled(delivery):
            return
        for delay in self._policy.delays:
            await self._pause(delay * self._scale * self._jitter())
            if await self._settled(delivery):
                return

    def _jitter(self) -> float:
        return 1 + random.uniform(-self._policy.jitter, self._policy.jitter)

    async def _settled(self, delivery: Delivery) -> bool:
        """One POST; True when there is nothing more to do for this delivery."""
        try:
            status = await self._post(delivery)
        except httpx.TransportError:
            return False
        if 200 <= status < 300:
            delivery.taken()
            return True
        return status in self._policy.final

    async def _post(self, delivery: Delivery) -> int:
        timeout = self._policy.timeout
        request = httpx.Request(
            "POST",
            delivery.url,
            headers=dict(delivery.headers),
            content=delivery.body,
            extensions={"timeout": {"connect": timeout, "read": timeout, "write": timeout, "pool": None}},
        )
        response = await self._transport.handle_async_request(request)
        await response.aread()
        return response.status_code

    async def close(self) -> None:
        await self._transport.aclose()
