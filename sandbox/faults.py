"""Faults a test switches on: which request or delivery each one hits, and how often."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from sandbox.numbers import to_jid

SENDS = "message/*"
EVERY = "*"

# kind -> the operations it hits unless told otherwise, and its own parameters with their defaults.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "latency": (SENDS, {"seconds": 1.0}),
    "answer_lost": (SENDS, {}),
    "reset_before": (SENDS, {}),
    "hang": (SENDS, {"accepted": False}),
    "error": (SENDS, {"shape": "internal_500", "accepted": None, "retry_after": 1}),
    "graph_error": (
        SENDS,
        {
            "code": None,
            "subcode": None,
            "status": None,
            "details": "",
            "retry_after": None,
            "accepted": False,
        },
    ),
    "failed_status": (EVERY, {"code": 131026, "details": "", "then": ""}),
    "read_only": (EVERY, {}),
    "dead_socket": (EVERY, {}),
    "zombie": (SENDS, {"cured_by_restart": True}),
    "typing_fails": ("chat/sendPresence", {}),
    "stay_pending": (EVERY, {}),
    "error_receipt": (EVERY, {}),
    "skip_server_ack": (EVERY, {}),
    "webhooks_before_answer": (SENDS, {}),
    "webhooks_lost": (EVERY, {"event": EVERY}),
    "webhooks_doubled": (EVERY, {"event": EVERY}),
    "webhooks_late": (EVERY, {"event": EVERY, "seconds": 1.0}),
    "webhooks_reordered": (EVERY, {"event": EVERY, "window": 1.0}),
    "webhook_config_wiped": (EVERY, {}),
    "connecting_storm": (EVERY, {"rate": 16.0, "seconds": 5.0}),
}


@dataclass(frozen=True)
class Target:
    """What a fault is matched against; an empty field matches only a `*`."""

    instance: str
    number: str = ""
    op: str = ""
    event: str = ""


@dataclass
class Fault:
    id: int
    kind: str
    op: str
    params: dict[str, Any]
    instance: str = EVERY
    number: str = EVERY
    times: int | None = None
    probability: float = 1.0
    for_seconds: float | None = None
    seed: int | None = None
    hits: int = 0
    cleared: bool = False
    started_at: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._window_opened = 0.0

    @property
    def active(self) -> bool:
        if self.cleared or self.times == 0:
            return False
        return self.for_seconds is None or time.time() < self.started_at + self.for_seconds

    def matches(self, target: Target) -> bool:
        return (
            fnmatchcase(target.instance, self.instance)
            and (fnmatchcase(target.op, self.op) or target.op.endswith(f"/{self.op}"))
            and fnmatchcase(target.event, self.params.get("event", EVERY))
            and (self.number == EVERY or to_jid(self.number) == to_jid(target.number))
        )

    def strike(self) -> bool:
        """Throw the dice and count a hit; no await between the check and the count, so `times` is exact."""
        if not self.active or self._dice.random() >= self.probability:
            return False
        self.hits += 1
        if self.times is not None:
            self.times -= 1
        return True

    def mirrored_delay(self) -> float:
        """How long to hold a delivery so that those of one window leave in reverse: what came t seconds
        into the window leaves t seconds before its mirror image ends."""
        now, window = time.monotonic(), float(self.params["window"])
        if now - self._window_opened > window:
            self._window_opened = now
        return 2 * (self._window_opened + window - now)

    def describe(self) -> dict[str, Any]:
        shown = ("id", "kind", "op", "instance", "number", "times", "probability", "for_seconds", "hits")
        return {**{name: getattr(self, name) for name in shown}, **self.params, "active": self.active}


class Faults:
    def __init__(self) -> None:
        self._faults: dict[int, Fault] = {}
        self._ids = itertools.count(1)

    def parse(self, spec: dict[str, Any]) -> Fault:
        """A fault, not yet armed, from the control API's JSON. Raises ValueError naming what is not
        understood."""
        spec = dict(spec)
        kind = spec.pop("kind", None)
        if kind not in KINDS:
            raise ValueError(f"unknown kind {kind!r}; known: {', '.join(KINDS)}")
        op, defaults = KINDS[kind]
        params = {name: spec.pop(name, default) for name, default in defaults.items()}
        try:
            return Fault(id=next(self._ids), kind=kind, params=params, **{"op": op, **spec})
        except TypeError as error:
            raise ValueError(str(error)) from error

    def arm(self, fault: Fault) -> None:
        self._faults[fault.id] = fault

    def take(self, kind: str, target: Target) -> Fault | None:
        """The first armed fault of this kind that hits the target, counted as used."""
        for fault in self._faults.values():
            if fault.kind == kind and fault.matches(target) and fault.strike():
                return fault
        return None

    def cure(self, instance: str) -> None:
        """What ends when an instance is restarted."""
        for fault in list(self._faults.values()):
            if fault.params.get("cured_by_restart") and fnmatchcase(instance, fault.instance):
                self.clear(fault.id)

    def list(self) -> list[dict[str, Any]]:
        return [fault.describe() for fault in self._faults.values()]

    def clear(self, fault_id: int | None = None) -> None:
        """Disarm one fault or all; a storm in progress ends too, as it watches `cleared`."""
        ids = list(self._faults) if fault_id is None else [fault_id]
        for key in ids:
            if fault := self._faults.pop(key, None):
                fault.cleared = True
