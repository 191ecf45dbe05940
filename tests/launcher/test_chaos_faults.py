"""Bringing faults about and ending them: at their times, in their order, again where it did not work."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from launcher.chaos.faults import KINDS, Injector, Outage
from launcher.chaos.journal import Journal
from launcher.chaos.provider import ControlError
from launcher.chaos.schedule import DECK, Fault


@dataclass
class Log:
    """Stands for everything that is acted upon, and remembers what was done, in order."""

    done: list[str] = field(default_factory=list)
    refusals: int = 0

    def kill(self, name: str) -> None:
        self.done.append(f"kill {name}")

    def light(self, name: str, step: str, after: int) -> None:
        self.done.append(f"light {name} {step} {after}")

    def arm(self, spec: dict[str, Any]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ControlError("down")
        self.done.append(f"arm {sorted(spec.items())}")

    def disconnect(self, instance: str, *, terminal: bool) -> None:
        self.done.append(f"disconnect {instance} {terminal}")

    def pair(self, instance: str) -> None:
        self.done.append(f"pair {instance}")


class FakeEngine:
    def __init__(self, name: str, log: Log) -> None:
        self._name = name
        self._log = log

    def stop(self) -> None:
        self._log.done.append(f"{self._name} stop")

    def kill(self) -> None:
        self._log.done.append(f"{self._name} kill")

    def start(self) -> None:
        self._log.done.append(f"{self._name} start")


class FakeFleet(Log):
    def __init__(self, log: Log) -> None:
        super().__init__(log.done)
        self.valkey = FakeEngine("valkey", log)
        self.postgres = FakeEngine("postgres", log)

    def freeze(self, engine: FakeEngine) -> None:
        self.done.append(f"freeze {engine._name}")

    def thaw(self, engine: FakeEngine) -> None:
        self.done.append(f"thaw {engine._name}")


class Clock:
    """Stands in for the time module."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("launcher.chaos.faults.time", clock)
    return clock


@dataclass
class Scene:
    injector: Injector
    log: Log
    clock: Clock

    def until(self, seconds: float) -> list[str]:
        """What is done up to that second of the run, looked at ten times a second."""
        already = len(self.log.done)
        while self.clock.now < 100 + seconds:
            self.clock.now += 0.1
            self.injector.step()
        return self.log.done[already:]


def play(clock: Clock, tmp_path: Path, faults: Sequence[Fault]) -> Scene:
    log = Log()
    injector = Injector(
        faults,
        fleet=FakeFleet(log),  # type: ignore[arg-type]
        provider=log,  # type: ignore[arg-type]
        instances=["a", "b"],
        journal=Journal(tmp_path / "journal"),
    )
    injector.start()
    return Scene(injector, log, clock)


def test_acts_at_the_time_and_heals_when_it_is_over(clock: Clock, tmp_path: Path) -> None:
    faults = [
        Fault(at=1, kind="redis_stopped", seconds=2),
        Fault(at=2, kind="kill", process="web"),
        Fault(at=5, kind="redis_frozen", seconds=1),
    ]
    scene = play(clock, tmp_path, faults)

    assert scene.until(0.9) == []
    assert scene.until(2.5) == ["valkey stop", "kill web"]
    assert scene.until(4) == ["valkey start"]
    assert scene.until(7) == ["freeze valkey", "thaw valkey"]
    assert not scene.injector.busy()
    assert scene.injector.injected == {"redis_stopped": 1, "kill": 1, "redis_frozen": 1}


@pytest.mark.parametrize(
    ("fault", "done"),
    [
        (Fault(at=0, kind="die", process="web", detail={"step": "s", "after": 3}), ["light web s 3"]),
        (Fault(at=0, kind="redis_killed"), ["valkey kill", "valkey start"]),
        (Fault(at=0, kind="postgres_crashed"), ["postgres kill", "postgres start"]),
        (Fault(at=0, kind="reconnected", instance=1), ["disconnect b False"]),
        (Fault(at=0, kind="logged_out", instance=0), ["disconnect a True", "pair a"]),
        (
            Fault(at=0, kind="latency", seconds=3, instance=1, detail={"seconds": 2}),
            ["arm [('for_seconds', 3), ('instance', 'b'), ('kind', 'latency'), ('seconds', 2)]"],
        ),
        (
            Fault(at=0, kind="webhook_config_wiped"),
            ["arm [('instance', '*'), ('kind', 'webhook_config_wiped'), ('times', 1)]"],
        ),
    ],
)
def test_does_what_the_kind_says(fault: Fault, done: list[str], clock: Clock, tmp_path: Path) -> None:
    assert play(clock, tmp_path, [fault]).until(0.3) == done


def test_tries_again_while_the_sandbox_is_down(clock: Clock, tmp_path: Path) -> None:
    scene = play(clock, tmp_path, [Fault(at=0, kind="hang", seconds=1)])
    scene.log.refusals = 2

    assert scene.until(0.9) == []
    assert len(scene.until(2)) == 1
    assert scene.injector.injected == {"hang": 1}


def test_ends_an_outage_before_the_next_one_even_when_it_is_behind(clock: Clock, tmp_path: Path) -> None:
    faults = [
        Fault(at=1, kind="redis_stopped", seconds=1),
        Fault(at=2.2, kind="redis_killed", seconds=0.5),
    ]
    scene = play(clock, tmp_path, faults)
    clock.now = 110.0

    assert scene.until(10.2) == ["valkey stop", "valkey start", "valkey kill", "valkey start"]


def test_remembers_when_redis_was_away(clock: Clock, tmp_path: Path) -> None:
    scene = play(clock, tmp_path, [Fault(at=1, kind="redis_stopped", seconds=2), Fault(at=2, kind="kill")])

    scene.until(2)
    (during,) = scene.injector.outages
    assert during.ended == float("inf")
    scene.until(4)

    assert scene.injector.outages == [Outage(pytest.approx(101.0, abs=0.2), pytest.approx(103.0, abs=0.2))]


def test_every_kind_is_ours_or_the_sandboxs() -> None:
    from sandbox.faults import KINDS as SANDBOX

    assert set(DECK) <= set(KINDS) | set(SANDBOX)


def test_writes_down_what_it_did(clock: Clock, tmp_path: Path) -> None:
    play(clock, tmp_path, [Fault(at=0, kind="logged_out", instance=1, seconds=1)]).until(2)

    lines = (tmp_path / "journal").read_text().splitlines()
    assert [line.split()[2] for line in lines] == ["fault", "healed"]
    assert "logged_out instance 1 for 1.0 s" in lines[0]
    assert time.strptime(lines[0].split()[1][:8], "%H:%M:%S")
