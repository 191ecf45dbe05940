"""The loop inside a worker that makes deliveries: claims, calls on one event loop, settles in batches.

    wake() ──► claimer thread ──► event loop: sign, call ──► settler thread ──► wake()

It looks by itself every second, so that a lost wake-up, or a Redis that is away, costs no more. Everything here may be
lost at any instant: the rows say what is to be done, and what was in flight is tried again when its lease has ended.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from queue import Empty, SimpleQueue

import structlog
import uvloop
from django.conf import settings
from django.db import DataError, close_old_connections, connection
from django.utils import timezone

from pilot import ssrf
from pilot.outbound import Answer, Outbound, Unanswered
from webhooks import attempts, claiming, rehearsing, settling
from webhooks.claiming import Claim
from webhooks.settling import Settlement

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
RELEASE_SECONDS = 5.0
CLAIMED_AT_ONCE = 200
SETTLED_AT_ONCE = 200
RECONNECT_SECONDS = 1.0  # between tries while the database is away

_shared: Sender | None = None
_sharing = threading.Lock()


def shared_sender() -> Sender:
    """This process's sender, started at its first use."""
    global _shared
    with _sharing:
        if _shared is None:
            _shared = Sender(in_flight=settings.WEBHOOKS_IN_FLIGHT)
            _shared.start()
    return _shared


class Sender:
    """Makes whatever deliveries are due, until `stop()`."""

    def __init__(self, *, in_flight: int, clock: Callable[[], datetime] = timezone.now) -> None:
        self._clock = clock
        self._slots = in_flight
        self._busy = 0
        self._woken = True
        self._stopping = False
        self._released_at = 0.0
        self._moved_at = time.monotonic()
        self._condition = threading.Condition()
        self._settlements: SimpleQueue[Settlement | None] = SimpleQueue()  # None ends the settler
        self._loop = uvloop.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = [
            threading.Thread(target=self._run_loop, name="webhooks-calls", daemon=True),
            threading.Thread(target=self._run_claimer, name="webhooks-claims", daemon=True),
            threading.Thread(target=self._run_settler, name="webhooks-settles", daemon=True),
        ]

    # --- from outside, any thread

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Says that something may be due."""
        with self._condition:
            self._woken = True
            self._condition.notify_all()

    def stop(self, *, timeout: float) -> bool:
        """Claims nothing more, waits up to `timeout` seconds for what is in flight. True when all was settled."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
            idle = self._condition.wait_for(lambda: self._busy == 0, timeout)
        self._settlements.put(None)
        self._loop.call_soon_threadsafe(self._loop.stop)
        for thread in self._threads:
            thread.join(timeout=1)
        return idle

    def stuck_for(self) -> float:
        """Seconds for which it has neither looked for work nor settled any."""
        return time.monotonic() - self._moved_at

    # --- claiming

    def _run_claimer(self) -> None:
        while (room := self._next_room()) is not None:
            claims = self._claim(room)
            with self._condition:
                self._busy += len(claims)
                self._woken = self._woken or bool(claims)
            for each in claims:
                self._loop.call_soon_threadsafe(self._begin, each)
        connection.close()

    def _next_room(self) -> int | None:
        """How many deliveries may be claimed now, at least one; None when stopping."""
        with self._condition:
            self._condition.wait_for(lambda: self._stopping or self._woken, LOOK_SECONDS)
            self._woken = False
            self._condition.wait_for(lambda: self._stopping or self._busy < self._slots)
            return None if self._stopping else min(self._slots - self._busy, CLAIMED_AT_ONCE)

    def _claim(self, room: int) -> list[Claim]:
        try:
            now = self._clock()
            if time.monotonic() - self._released_at > RELEASE_SECONDS:
                claiming.release_lost(now=now)
                self._released_at = time.monotonic()
            claims = claiming.claim(room=room, now=now)
        except Exception:
            log.exception("webhooks.claim_failed")
            self._pause_after_failure()
            return []
        self._moved_at = time.monotonic()
        return claims

    def _pause_after_failure(self) -> None:
        close_old_connections()
        time.sleep(RECONNECT_SECONDS)

    # --- calling

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._outbound = self._loop.run_until_complete(self._open())
        self._loop.run_forever()
        self._loop.run_until_complete(self._outbound.aclose())
        self._loop.close()

    async def _open(self) -> Outbound:
        return Outbound(ssrf.policy(), connections=self._slots)

    def _begin(self, claim: Claim) -> None:
        task = self._loop.create_task(self._deliver(claim))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, claim: Claim) -> None:
        try:
            settlement = await self._call(claim)
        except Exception as error:  # a bug of ours, which must not keep a delivery in flight
            log.exception("webhooks.call_failed", delivery=claim.delivery.pk)
            result = Unanswered("internal", type(error).__name__)
            settlement = Settlement(claim, result, attempts.fault(claim, result))
        self._settlements.put(settlement)

    async def _call(self, claim: Claim) -> Settlement:
        request = attempts.prepare(claim, now=self._clock())
        if simulated := rehearsing.failure(claim):
            return Settlement(claim, simulated, attempts.entry(claim, request, simulated))
        result: Answer | Unanswered
        try:
            result = await self._outbound.exchange(
                "POST",
                request.url,
                headers=request.headers,
                content=request.body,
                timeout=settings.WEBHOOK_TIMEOUT_SECONDS,
                body_limit=attempts.BODY_KEPT,
            )
        except Unanswered as error:
            result = error
        return Settlement(claim, result, attempts.entry(claim, request, result))

    # --- settling

    def _run_settler(self) -> None:
        while batch := self._next_settlements():
            self._settle(batch)
            self._moved_at = time.monotonic()
            with self._condition:
                self._busy -= len(batch)
                self._woken = True  # their endpoints have slots again
                self._condition.notify_all()
        connection.close()

    def _next_settlements(self) -> list[Settlement]:
        """What has come in, at least one; nothing at the end."""
        batch: list[Settlement] = []
        settlement = self._settlements.get()
        while settlement is not None:
            batch.append(settlement)
            if len(batch) == SETTLED_AT_ONCE:
                break
            try:
                settlement = self._settlements.get_nowait()
            except Empty:
                break
        if settlement is None and batch:
            self._settlements.put(None)  # the end comes after this batch
        return batch

    def _settle(self, batch: Sequence[Settlement]) -> None:
        """Tries until it is written. If the process dies first, the leases end and the deliveries are repeated."""
        while True:
            try:
                settling.settle(batch, now=self._clock())
                return
            except DataError:
                log.exception("webhooks.log_unstorable", deliveries=len(batch))
                batch = [replace(each, entry=attempts.bare(each.entry)) for each in batch]
            except Exception:
                log.exception("webhooks.settle_failed", deliveries=len(batch))
                self._pause_after_failure()
