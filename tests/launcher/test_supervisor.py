"""The supervisor, with services that end when a test says so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from launcher.console import Console
from launcher.errors import LauncherError
from launcher.supervisor import START_FAILURES, Supervisor


@dataclass
class FakeService:
    """A service that runs until told to crash; `history` is shared to see the order of things."""

    name: str
    history: list[str]
    log: Path = Path("/nonexistent")
    starts: int = 0
    running: bool = False
    crashes: bool = False
    exit_code: int | None = None

    def start(self) -> None:
        self.starts += 1
        self.running = not self.crashes

    def alive(self) -> bool:
        return self.running

    def request_stop(self) -> None:
        self.history.append(f"asked {self.name}")

    def stop(self) -> None:
        self.running = False
        self.history.append(f"stopped {self.name}")

    def hurry(self) -> None:
        self.history.append(f"hurried {self.name}")


@dataclass
class Clock:
    """Stands in for the time module in the supervisor: sleeping moves it at once."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The supervisor's clock."""
    clock = Clock()
    monkeypatch.setattr("launcher.supervisor.time", clock)
    return clock


@pytest.fixture
def supervisor() -> Supervisor:
    """A supervisor of nothing yet."""
    return Supervisor(Console())


def test_restarts_a_service_each_time_it_ends_with_growing_delay(
    supervisor: Supervisor, clock: Clock
) -> None:
    service = FakeService("worker", [])
    supervisor.start(service)

    service.running = False
    supervisor.sleep(0.4)
    assert service.starts == 1
    supervisor.sleep(0.3)
    assert service.starts == 2

    service.running = False
    supervisor.sleep(0.9)
    assert service.starts == 2
    supervisor.sleep(0.3)
    assert service.starts == 3


def test_forgets_failures_of_a_service_that_ran_steadily(supervisor: Supervisor) -> None:
    service = FakeService("worker", [])
    supervisor.start(service)
    service.running = False
    supervisor.sleep(0.7)
    assert service.starts == 2

    supervisor.sleep(61.0)
    service.running = False
    supervisor.sleep(0.7)

    assert service.starts == 3


def test_never_waits_longer_than_half_a_minute(supervisor: Supervisor) -> None:
    service = FakeService("worker", [], crashes=True)
    supervisor.start(service)

    supervisor.sleep(600.0)

    assert service.starts > 600 / 31


def test_shows_the_log_of_a_service_that_keeps_failing(supervisor: Supervisor, tmp_path: Path) -> None:
    log = tmp_path / "web.log"
    log.write_text("first line\nImportError: no module named pilot\n")
    supervisor.start(FakeService("web", [], log=log, crashes=True))

    supervisor.look()
    supervisor.refuse_failing()
    supervisor.sleep(2.0**START_FAILURES)

    with pytest.raises(LauncherError, match="web does not start") as raised:
        supervisor.refuse_failing()
    assert "| ImportError: no module named pilot" in str(raised.value)


def test_stops_the_last_stage_first_and_each_stage_together(supervisor: Supervisor) -> None:
    history: list[str] = []
    supervisor.start(FakeService("database", history))
    supervisor.start(FakeService("web", history), FakeService("worker", history))

    supervisor.stop()

    assert history == [
        "asked web",
        "asked worker",
        "stopped web",
        "stopped worker",
        "asked database",
        "stopped database",
    ]


def test_stops_a_service_whose_start_was_interrupted(supervisor: Supervisor) -> None:
    class Interrupted(FakeService):
        def start(self) -> None:
            super().start()
            raise LauncherError("interrupted")

    service = Interrupted("database", [])
    with pytest.raises(LauncherError):
        supervisor.start(service)

    supervisor.stop()

    assert not service.running
