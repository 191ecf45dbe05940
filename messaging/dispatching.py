"""The loop inside a worker that moves messages: claims for many instances at once, calls, settles in batches.

    wake(instance) ──► claimer thread ──► event loop: typing, deadline, send ──► settler thread ──► wake(instance)

Three threads, however many instances there are. Claims and settlements are one transaction per batch, so the cost of
a message falls as traffic grows; the calls of all instances are in flight together on one event loop. Celery's tokens
only call `wake()`. Everything here may be lost at any instant: the rows say what is to be done.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime
from functools import cache
from queue import SimpleQueue

import structlog
from django.conf import settings
from django.db import close_old_connections, connection
from django.utils import timezone

from instances.providers import PROVIDERS
from instances.providers.base import Outcome, ProviderError, Receipt
from instances.providers.http import AsyncHttp
from messaging import gates
from messaging.claiming import Claim, claim
from messaging.settling import Settlement, settle

log = structlog.get_logger(__name__)

CLAIMED_AT_ONCE = 50
SETTLED_AT_ONCE = 100
FORECASTS_COMPARED = 1000
RECONNECT_SECONDS = 1.0  # between tries while the database is away


@cache
def shared_dispatcher() -> Dispatcher:
    """This process's dispatcher, started at its first use."""
    dispatcher = Dispatcher(in_flight=settings.SENDS_IN_FLIGHT)
    dispatcher.start()
    return dispatcher


class Dispatcher:
    """Sends whatever is due on the instances it is woken for, until `stop()`."""

    def __init__(self, *, in_flight: int, clock: Callable[[], datetime] = timezone.now) -> None:
        self._clock = clock
        self._slots = in_flight
        self._woken: set[int] = set()
        self._busy = 0
        self._condition = threading.Condition()
        self._stopping = False
        self._settled: SimpleQueue[Settlement | None] = SimpleQueue()  # None ends the settler
        self._forecast_errors: deque[float] = deque(maxlen=FORECASTS_COMPARED)
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = [
            threading.Thread(target=self._run_loop, name="dispatcher-calls", daemon=True),
            threading.Thread(target=self._run_claimer, name="dispatcher-claims", daemon=True),
            threading.Thread(target=self._run_settler, name="dispatcher-settles", daemon=True),
        ]

    # --- from outside, any thread

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wake(self, *instance_ids: int) -> None:
        """Says that these instances may have due work. Cheap, and may be repeated."""
        with self._condition:
            self._woken.update(instance_ids)
            self._condition.notify_all()

    def stop(self, *, timeout: float) -> bool:
        """Claims nothing more, waits up to `timeout` seconds for what is in flight. True when all was settled."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
            idle = self._condition.wait_for(lambda: self._busy == 0, timeout)
        self._settled.put(None)
        self._loop.call_soon_threadsafe(self._loop.stop)
        for thread in self._threads:
            thread.join(timeout=1)
        return idle

    def idle(self, *, timeout: float) -> bool:
        """Waits until nothing is woken or in flight. For tests and shutdown."""
        with self._condition:
            return self._condition.wait_for(lambda: not self._woken and self._busy == 0, timeout)

    def forecast_error(self) -> dict[str, float]:
        """How late the last sends were against their forecast, in seconds (negative: early); empty before any."""
        errors = sorted(self._forecast_errors)
        if not errors:
            return {}
        last = len(errors) - 1
        return {"count": len(errors), "p50": errors[last // 2], "p95": errors[last * 95 // 100]}

    # --- claiming

    def _run_claimer(self) -> None:
        while (batch := self._next_batch()) is not None:
            try:
                claims = claim(batch, now=self._clock())
            except Exception:
                log.exception("dispatcher.claim_failed", instances=len(batch))
                self._pause_after_failure()
                self._give_back(len(batch), again=batch)
                continue
            self._give_back(len(batch) - len(claims))
            self.wake(*(each.instance_id for each in claims if each.more))
            self._compare_forecasts(claims)
            for each in claims:
                self._loop.call_soon_threadsafe(self._begin, each)
        connection.close()

    def _compare_forecasts(self, claims: list[Claim]) -> None:
        now = self._clock()
        for each in claims:
            if each.expected_at is not None:
                self._forecast_errors.append((now - each.expected_at).total_seconds())

    def _next_batch(self) -> list[int] | None:
        """Up to as many woken instances as there are free slots, which they occupy; None when stopping."""
        with self._condition:
            self._condition.wait_for(lambda: self._stopping or (self._woken and self._busy < self._slots))
            if self._stopping:
                return None
            room = min(self._slots - self._busy, CLAIMED_AT_ONCE)
            batch = sorted(self._woken)[:room] if len(self._woken) > room else list(self._woken)
            self._woken.difference_update(batch)
            self._busy += len(batch)
            return batch

    def _give_back(self, slots: int, again: list[int] | None = None) -> None:
        with self._condition:
            self._busy -= slots
            self._woken.update(again or [])
            self._condition.notify_all()

    def _pause_after_failure(self) -> None:
        close_old_connections()
        threading.Event().wait(RECONNECT_SECONDS)

    # --- calling

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._http = AsyncHttp(connections=self._slots)
        self._loop.run_forever()
        self._loop.run_until_complete(self._http.aclose())
        self._loop.close()

    def _begin(self, claim: Claim) -> None:
        task = self._loop.create_task(self._deliver(claim))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, claim: Claim) -> None:
        result: Receipt | gates.Refusal | ProviderError
        try:
            result = await self._call(claim)
        except ProviderError as error:
            result = error
        except Exception as error:
            # A bug of ours. Whether the request left is not known, and so is the answer.
            log.exception("dispatcher.call_failed", message_id=claim.message.id)
            result = ProviderError("internal", type(error).__name__, outcome=Outcome.UNKNOWN)
        self._settled.put(Settlement(claim, result))

    async def _call(self, claim: Claim) -> Receipt | gates.Refusal:
        provider = PROVIDERS[claim.provider]
        if claim.typing_ms and "typing" in provider.supports:
            await self._type(claim)
        # The deadline at the moment of the call, not of the claim.
        refusal = gates.message_gate(deliver_until=claim.deliver_until, opted_out=False, now=self._clock())
        if refusal is not None:
            return refusal
        return await self._http.perform(provider.send(claim.account, claim.message))

    async def _type(self, claim: Claim) -> None:
        """Shows "typing…" first. Best effort: whatever happens, the message decides."""
        call = PROVIDERS[claim.provider].typing(claim.account, claim.message, milliseconds=claim.typing_ms)
        try:
            await self._http.perform(call)
        except ProviderError as error:
            log.info("dispatcher.typing_failed", message_id=claim.message.id, code=error.code)

    # --- settling

    def _run_settler(self) -> None:
        while batch := self._next_settlements():
            self._settle(batch)
            # A lane is free again: look for its next message.
            self._give_back(len(batch), again=[settlement.claim.instance_id for settlement in batch])
        connection.close()

    def _next_settlements(self) -> list[Settlement]:
        """What has come in, at least one; nothing at the end."""
        batch: list[Settlement] = []
        while (settlement := self._settled.get()) is not None:
            batch.append(settlement)
            if self._settled.empty() or len(batch) == SETTLED_AT_ONCE:
                break
        return batch

    def _settle(self, batch: list[Settlement]) -> None:
        """Tries until it is written. If the process dies first, the leases end and the messages are looked up."""
        while True:
            try:
                settle(batch, now=self._clock())
                return
            except Exception:
                log.exception("dispatcher.settle_failed", messages=len(batch))
                self._pause_after_failure()
