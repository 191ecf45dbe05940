"""Faults, each with what brings it about and what ends it."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import redis

from launcher.chaos.fleet import Fleet
from launcher.chaos.journal import Journal
from launcher.chaos.provider import ControlError, Provider
from launcher.chaos.schedule import ENGINES, EVERY_INSTANCE, Fault

Heal = Callable[[], None]
TRY_AGAIN_AFTER = 0.5  # seconds, while the sandbox or Redis cannot be told
FLUSH_TIMEOUT = 2.0  # seconds


@dataclass(slots=True)
class Outage:
    """When Redis was away or lost what it had; by the monotonic clock."""

    began: float
    ended: float = math.inf


class Injector:
    """Brings about the faults of a plan, each at its time, and ends them. Runs in the fleet's thread."""

    def __init__(
        self,
        faults: Sequence[Fault],
        *,
        fleet: Fleet,
        provider: Provider,
        instances: Sequence[str],
        journal: Journal,
    ) -> None:
        self._fleet = fleet
        self._provider = provider
        self._instances = instances
        self._journal = journal
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self.began = 0.0
        self.outages: list[Outage] = []  # of Redis
        self.injected: Counter[str] = Counter()
        for fault in faults:
            self._at(fault.at, partial(self._inject, fault))

    def start(self) -> None:
        """Seconds count from now."""
        self.began = time.monotonic()

    def busy(self) -> bool:
        """Whether anything is still to be done."""
        return bool(self._due)

    def step(self) -> None:
        """Do what is due."""
        while self._due and self._due[0][0] <= time.monotonic() - self.began:
            _at, _order, action = heapq.heappop(self._due)
            action()

    def _at(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (seconds, next(self._order), action))

    def _inject(self, fault: Fault) -> None:
        if ENGINES.get(fault.kind) == "redis":
            self.outages.append(Outage(time.monotonic()))
        try:
            heal = KINDS.get(fault.kind, Injector._arm)(self, fault)
        except (ControlError, redis.RedisError) as error:
            self._journal.write("later", f"{fault.describe()}: {error}")
            self._at(time.monotonic() - self.began + TRY_AGAIN_AFTER, partial(self._inject, fault))
            return
        self.injected[fault.kind] += 1
        self._journal.write("fault", fault.describe())
        if heal:
            # By the plan's time, in which outages of one engine do not overlap, even when we are behind it.
            self._at(fault.at + fault.seconds, partial(self._heal, fault, heal))
        else:
            self._end_outage(fault)

    def _heal(self, fault: Fault, heal: Heal) -> None:
        try:
            heal()
        except ControlError:
            self._at(time.monotonic() - self.began + TRY_AGAIN_AFTER, partial(self._heal, fault, heal))
            return
        self._end_outage(fault)
        self._journal.write("healed", fault.describe())

    def _end_outage(self, fault: Fault) -> None:
        if ENGINES.get(fault.kind) == "redis":
            self.outages[-1].ended = time.monotonic()

    # --- processes

    def _kill(self, fault: Fault) -> None:
        self._fleet.kill(fault.process)

    def _die(self, fault: Fault) -> None:
        self._fleet.light(fault.process, fault.detail["step"], fault.detail["after"])

    # --- engines

    def _redis_stopped(self, fault: Fault) -> Heal:
        self._fleet.valkey.stop()
        return self._fleet.valkey.start

    def _redis_killed(self, fault: Fault) -> Heal:
        self._fleet.valkey.kill()
        return self._fleet.valkey.start

    def _redis_frozen(self, fault: Fault) -> Heal:
        self._fleet.freeze(self._fleet.valkey)
        return partial(self._fleet.thaw, self._fleet.valkey)

    def _redis_flushed(self, fault: Fault) -> None:
        with redis.Redis.from_url(self._fleet.valkey.url, socket_timeout=FLUSH_TIMEOUT) as client:
            client.flushall()

    def _postgres_crashed(self, fault: Fault) -> None:
        self._fleet.postgres.kill()
        self._fleet.postgres.start()

    # --- the provider

    def _arm(self, fault: Fault) -> None:
        pattern = "*" if fault.instance == EVERY_INSTANCE else self._instances[fault.instance]
        spec = {"kind": fault.kind, "instance": pattern, **fault.detail}
        self._provider.arm(spec | ({"for_seconds": fault.seconds} if fault.seconds else {"times": 1}))

    def _reconnected(self, fault: Fault) -> None:
        self._provider.disconnect(self._instances[fault.instance], terminal=False)

    def _logged_out(self, fault: Fault) -> Heal:
        name = self._instances[fault.instance]
        self._provider.disconnect(name, terminal=True)
        return partial(self._provider.pair, name)


KINDS: Mapping[str, Callable[[Injector, Fault], Heal | None]] = {
    "kill": Injector._kill,
    "die": Injector._die,
    "redis_stopped": Injector._redis_stopped,
    "redis_killed": Injector._redis_killed,
    "redis_frozen": Injector._redis_frozen,
    "redis_flushed": Injector._redis_flushed,
    "postgres_crashed": Injector._postgres_crashed,
    "reconnected": Injector._reconnected,
    "logged_out": Injector._logged_out,
}
