"""The loop inside a worker that moves messages: claims for many instances at once, calls, settles in batches.

    wake(instance) ──► the rows' thread: settle what was answered, then claim ──► wait for more
                            ▲                                           │
                            └── the calls' thread: deadline, send ◄─────┘

Two threads, however many instances there are. Claims and settlements are one transaction per batch, so the cost of a
message falls as traffic grows; the calls of all instances are in flight together on one event loop. One thread for
both kinds of rows: a lane that is settled is claimed for in the same round, and more threads would only fight for
Python's lock. Celery's tokens only call `wake()`. Everything here may be lost at any instant: the rows say what is to
be done.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

import structlog
import uvloop
from django.conf import settings
from django.db import close_old_connections, connection
from django.utils import timezone

from instances.models import Instance
from instances.providers import PROVIDERS
from instances.providers.base import MISCONFIGURED, Call, Outcome, ProviderError, Receipt
from instances.providers.http import AsyncHttp
from messaging import gates
from messaging.claiming import Claim, claim
from messaging.recipients import window_gate
from messaging.settling import AWAY, Settlement, settle

log = structlog.get_logger(__name__)

CLAIMED_AT_ONCE = 50
SETTLED_AT_ONCE = 100
FORECASTS_COMPARED = 1000
# From the look at the clock to the provider: what leaves any later may arrive after its deadline. Measured by bin/chaos
# with all processors busy: 0.24 s at most.
ON_THE_WAY = timedelta(milliseconds=250)
# How long an answer waits for others to be settled with: a transaction for each would cost several times as much.
GATHER_SECONDS = 0.002
RECONNECT_SECONDS = 1.0  # between tries while the database is away
# A server that hangs may fill its share of the slots, never all of them.
SERVERS_SHARE = 4
UNKNOWN = -1

_shared: Dispatcher | None = None
_sharing = threading.Lock()


def shared_dispatcher() -> Dispatcher:
    """This process's dispatcher, started at its first use."""
    global _shared
    with _sharing:
        if _shared is None:
            _shared = Dispatcher(in_flight=settings.SENDS_IN_FLIGHT)
            _shared.start()
    return _shared


class Dispatcher:
    """Sends whatever is due on the instances it is woken for, until `stop()`."""

    def __init__(self, *, in_flight: int, clock: Callable[[], datetime] = timezone.now) -> None:
        self._clock = clock
        self._slots = in_flight
        self._woken: dict[int, None] = {}  # an ordered set: first woken, first served
        self._busy = 0
        self._server_of: dict[int, int | None] = {}
        self._busy_on: Counter[int | None] = Counter()
        self._condition = threading.Condition()
        self._stopping = self._ending = False
        self._moved_at = time.monotonic()
        self._gathered: list[Settlement] = []  # by the calls' thread alone
        self._answered: deque[Settlement] = deque()
        self._forecast_errors: deque[float] = deque(maxlen=FORECASTS_COMPARED)
        self._loop = uvloop.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = [
            threading.Thread(target=self._run_calls, name="dispatcher-calls", daemon=True),
            threading.Thread(target=self._run_rows, name="dispatcher-rows", daemon=True),
        ]

    # --- from outside, any thread

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wake(self, *instance_ids: int) -> None:
        """Says that these instances may have due work. Cheap, and may be repeated."""
        with self._condition:
            self._woken.update(dict.fromkeys(instance_ids))
            self._condition.notify_all()

    def stop(self, *, timeout: float) -> bool:
        """Claims nothing more, waits up to `timeout` seconds for what is in flight. True when all was settled."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
            idle = self._condition.wait_for(lambda: self._busy == 0, timeout)
            self._ending = True
            self._condition.notify_all()
        self._loop.call_soon_threadsafe(self._loop.stop)
        for thread in self._threads:
            thread.join(timeout=1)
        return idle

    def idle(self, *, timeout: float) -> bool:
        """Waits until nothing is woken or in flight. For tests and shutdown."""
        with self._condition:
            return self._condition.wait_for(lambda: not self._woken and self._busy == 0, timeout)

    def stuck_for(self) -> float:
        """Seconds for which there was something to do and nothing was claimed or settled."""
        with self._condition:
            return time.monotonic() - self._moved_at if self._woken or self._busy else 0.0

    def forecast_error(self) -> dict[str, float]:
        """How late the last sends were against their forecast, in seconds (negative: early); empty before any."""
        errors = sorted(self._forecast_errors)
        if not errors:
            return {}
        last = len(errors) - 1
        return {"count": len(errors), "p50": errors[last // 2], "p95": errors[last * 95 // 100]}

    # --- rows

    def _run_rows(self) -> None:
        while (answered := self._next_answers()) is not None:
            if answered:
                self._settle(answered)
                self._give_back(len(answered), ended=[settlement.claim for settlement in answered])
            if batch := self._next_batch():
                self._claim_for(batch)
        connection.close()

    def _next_answers(self) -> list[Settlement] | None:
        """Waits for something to do; gives what is to be settled, perhaps nothing, and None at the end."""
        with self._condition:
            self._condition.wait_for(lambda: self._answered or self._ending or self._may_claim())
            if self._ending and not self._answered:
                return None
            return [self._answered.popleft() for _ in range(min(len(self._answered), SETTLED_AT_ONCE))]

    def _settle(self, batch: list[Settlement]) -> None:
        """Tries until it is written. If the process dies first, the leases end and the messages are looked up."""
        while True:
            try:
                settle(batch, now=self._clock())
                return
            except Exception:
                log.exception("dispatcher.settle_failed", messages=len(batch))
                self._pause_after_failure()

    # --- claiming

    def _may_claim(self) -> bool:
        return not self._stopping and bool(self._strangers() or self._claimable(1))

    def _next_batch(self) -> list[int]:
        """Woken instances for the free slots, which they occupy; perhaps none."""
        with self._condition:
            strangers = self._strangers() if not self._stopping else []
        if strangers:
            self._ask_for_servers(strangers)
        with self._condition:
            batch = self._claimable(CLAIMED_AT_ONCE) if not self._stopping else []
            for instance_id in batch:
                del self._woken[instance_id]
            self._busy += len(batch)
            return batch

    def _claim_for(self, batch: Sequence[int]) -> None:
        claims = self._claim(batch)
        self._note_claims(claims)
        self._give_back(len(batch) - len(claims))
        self.wake(*(each.instance_id for each in claims if each.more))
        self._loop.call_soon_threadsafe(self._begin, claims)

    def _strangers(self) -> list[int]:
        """Woken instances of which the server is not known yet."""
        return [instance_id for instance_id in self._woken if instance_id not in self._server_of]

    def _ask_for_servers(self, instance_ids: Sequence[int]) -> None:
        try:
            rows = Instance.objects.filter(pk__in=instance_ids).values_list("pk", "server_id")
            known = dict.fromkeys(instance_ids) | dict(rows)
        except AWAY:
            log.exception("dispatcher.database_away", instances=len(instance_ids))
            self._pause_after_failure()
            return
        with self._condition:
            self._server_of.update(known)

    def _claimable(self, most: int) -> list[int]:
        """The first woken instances for which there is room, overall and on their servers."""
        room = min(self._slots - self._busy, most)
        share = max(self._slots // SERVERS_SHARE, 1)
        found: list[int] = []
        busy = self._busy_on.copy()
        for instance_id in self._woken if room > 0 else ():
            server_id = self._server_of.get(instance_id, UNKNOWN)
            if server_id is None or (server_id != UNKNOWN and busy[server_id] < share):
                busy[server_id] += 1
                found.append(instance_id)
                if len(found) == room:
                    break
        return found

    def _claim(self, batch: Sequence[int]) -> list[Claim]:
        """Claims for a batch; for one instance at a time where the batch fails, so that one cannot fail others."""
        try:
            return claim(batch, now=self._clock())
        except AWAY:
            log.exception("dispatcher.database_away", instances=len(batch))
            self._pause_after_failure()
            self.wake(*batch)
            return []
        except Exception:
            log.exception("dispatcher.claim_failed", instances=len(batch))
        if len(batch) == 1:
            return []  # the pulse will wake it again
        return [each for instance_id in batch for each in self._claim([instance_id])]

    def _note_claims(self, claims: Iterable[Claim]) -> None:
        now = self._clock()
        with self._condition:
            self._moved_at = time.monotonic()
            for each in claims:
                self._busy_on[each.server_id] += 1
        for each in claims:
            if each.expected_at is not None:
                self._forecast_errors.append((now - each.expected_at).total_seconds())
            if each.again_in is not None:
                self._loop.call_soon_threadsafe(
                    self._loop.call_later, each.again_in, self.wake, each.instance_id
                )

    def _give_back(self, slots: int, *, ended: Iterable[Claim] = ()) -> None:
        with self._condition:
            self._moved_at = time.monotonic()
            self._busy -= slots
            for each in ended:
                self._busy_on[each.server_id] -= 1
                self._woken[each.instance_id] = None  # its lane is free again: look for its next message
            self._condition.notify_all()

    def _pause_after_failure(self) -> None:
        close_old_connections()
        time.sleep(RECONNECT_SECONDS)

    # --- calling

    def _run_calls(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._open())
        self._loop.run_forever()
        self._loop.run_until_complete(self._http.aclose())
        self._loop.close()

    async def _open(self) -> None:
        self._http = AsyncHttp(connections=self._slots)

    def _begin(self, claims: Iterable[Claim]) -> None:
        for each in claims:
            task = self._loop.create_task(self._deliver(each))
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
        self._gather(Settlement(claim, result))

    def _gather(self, settlement: Settlement) -> None:
        self._gathered.append(settlement)
        if len(self._gathered) == 1:
            self._loop.call_later(GATHER_SECONDS, self._hand_over)

    def _hand_over(self) -> None:
        with self._condition:
            self._answered.extend(self._gathered)
            self._condition.notify_all()
        self._gathered.clear()

    async def _call(self, claim: Claim) -> Receipt | gates.Refusal:
        call = _prepare(claim)
        if claim.typing_ms:
            await self._type(claim)
        # The deadline, and the lease, at the moment of the call: a process that was frozen may have lost both.
        now, latest = self._clock(), claim.deliver_until - ON_THE_WAY
        refusal = gates.message_gate(deliver_until=latest, opted_out=False, now=now)
        refusal = refusal or window_gate(open_until=claim.open_until, now=now)
        if refusal is not None:
            return refusal
        if now >= claim.claimed_at + settings.LEASE:
            raise ProviderError("lease_lost", "It took too long to start.", outcome=Outcome.RETRY)
        return await self._http.perform(call, leave_within=(latest - now).total_seconds())

    async def _type(self, claim: Claim) -> None:
        """Shows "typing…" first. Best effort: whatever happens, the message decides."""
        provider = PROVIDERS[claim.provider]
        if "typing" not in provider.supports:
            return
        try:
            await self._http.perform(
                provider.typing(claim.account, claim.message, milliseconds=claim.typing_ms)
            )
        except ProviderError as error:
            log.info("dispatcher.typing_failed", message_id=claim.message.id, code=error.code)
        except Exception:
            log.exception("dispatcher.typing_failed", message_id=claim.message.id)


def _prepare(claim: Claim) -> Call[Receipt]:
    """The call to make. Raises ProviderError: what cannot be put together was surely not sent."""
    try:
        return PROVIDERS[claim.provider].send(claim.account, claim.message)
    except Exception as error:
        log.exception("dispatcher.call_unusable", message_id=claim.message.id)
        raise ProviderError(MISCONFIGURED, type(error).__name__, outcome=Outcome.INSTANCE_DOWN) from error
