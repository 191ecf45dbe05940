"""Keeps services running: starts them, restarts whichever ends, stops them in order."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from launcher.console import Console
from launcher.errors import LauncherError, tail

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TICK = 0.1  # seconds between looks at the services
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
STEADY_AFTER = 60.0  # seconds of running after which earlier failures are forgotten
START_FAILURES = 3  # failures in a row after which a service counts as unable to start


class Service(Protocol):
    """What can be supervised: processes.Process and the engines."""

    @property
    def name(self) -> str: ...
    @property
    def log(self) -> Path: ...
    @property
    def exit_code(self) -> int | None: ...
    def start(self) -> None: ...
    def alive(self) -> bool: ...
    def request_stop(self) -> None: ...
    def stop(self) -> None: ...
    def hurry(self) -> None: ...


@dataclass
class _Watched:
    service: Service
    started_at: float
    failures: int = 0
    restart_at: float | None = None


class Supervisor:
    """Services in the order they were started; each call of start() adds one stage.

    Single-threaded on purpose: Linux delivers a death signal when the starting *thread* ends. Whoever waits
    for something calls sleep(), which looks after the services meanwhile.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stages: list[list[_Watched]] = []

    def start(self, *services: Service) -> None:
        """Start services that may run side by side; they stop before those started earlier."""
        stage: list[_Watched] = []
        self._stages.append(stage)
        for service in services:
            stage.append(_Watched(service, started_at=time.monotonic()))
            service.start()

    def sleep(self, seconds: float) -> None:
        """Let time pass while looking after the services."""
        deadline = time.monotonic() + seconds
        self.look()
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(TICK, left))
            self.look()

    def look(self) -> None:
        """Notice services that ended and restart those whose delay is over."""
        for watched in self._watched():
            if watched.restart_at is None:
                self._notice_end(watched)
            elif time.monotonic() >= watched.restart_at:
                self._restart(watched)

    def refuse_failing(self) -> None:
        """Raise LauncherError, with the end of its log, for a service that ended several times in a row."""
        for watched in self._watched():
            if watched.failures >= START_FAILURES:
                service = watched.service
                text = f"{service.name} does not start. {service.log} ends with\n{tail(service.log, 20)}"
                raise LauncherError(text)

    def stop(self) -> None:
        """Stop all, the last started stage first; a second Ctrl-C meanwhile kills what is left."""
        with _on_signal(self._hurry_all):
            for stage in reversed(self._stages):
                self._stop_stage([watched.service for watched in stage])
        self._stages.clear()

    def _watched(self) -> Iterator[_Watched]:
        return (watched for stage in self._stages for watched in stage)

    def _notice_end(self, watched: _Watched) -> None:
        if watched.service.alive():
            return
        if time.monotonic() - watched.started_at > STEADY_AFTER:
            watched.failures = 0
        watched.failures += 1
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2 ** (watched.failures - 1))
        watched.restart_at = time.monotonic() + delay
        service = watched.service
        self._console.warn(f"{service.name} ended (exit code {service.exit_code}); restart in {delay:g} s")

    def _restart(self, watched: _Watched) -> None:
        watched.restart_at = None
        watched.started_at = time.monotonic()
        try:
            watched.service.start()
        except LauncherError as error:
            self._console.warn(str(error))

    def _stop_stage(self, services: list[Service]) -> None:
        for service in services:
            service.request_stop()
        for service in services:
            if service.alive():
                self._console.status("stopping", service.name)
            service.stop()

    def _hurry_all(self) -> None:
        for watched in self._watched():
            watched.service.hurry()


class Stopped(BaseException):
    """A signal asked the command to end. Like KeyboardInterrupt, it is nobody's error to handle."""


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Turn Ctrl-C, SIGTERM and a closed terminal into Stopped during the block."""

    def stop() -> None:
        raise Stopped

    with _on_signal(stop):
        yield


@contextlib.contextmanager
def _on_signal(action: Callable[[], None]) -> Iterator[None]:
    def handle(signum: int, frame: FrameType | None) -> None:
        action()

    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
