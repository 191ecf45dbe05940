"""Loops of a long-lived process: a step that says how much it did, repeated until a signal, with a heartbeat."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping

import structlog
from django.db import close_old_connections

from pilot.health import beat

log = structlog.get_logger(__name__)

IDLE_SECONDS = 0.2
FAILED_SECONDS = 1.0
HEARTBEAT_SECONDS = 5.0


class Loop:
    """Repeats `step` in a thread: at once while it finds work, after a short rest when it found none."""

    def __init__(self, name: str, step: Callable[[], int], stopping: threading.Event) -> None:
        self.name = name
        self._step = step
        self._stopping = stopping
        self._beaten_at = 0.0
        self.thread = threading.Thread(target=self._run, name=name)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                did = self._step()
                self._note_progress()
                rest = 0.0 if did else IDLE_SECONDS
            except Exception:
                log.exception("loop.step_failed", loop=self.name)
                rest = FAILED_SECONDS
            close_old_connections()
            self._stopping.wait(rest)

    def _note_progress(self) -> None:
        if time.monotonic() - self._beaten_at > HEARTBEAT_SECONDS:
            beat(name=f"consume.{self.name}@{socket.gethostname()}", kind="consume")
            self._beaten_at = time.monotonic()


def run(steps: Mapping[str, Callable[[], int]]) -> None:
    """Runs every step in a loop of its own until SIGTERM or SIGINT; each finishes the batch it is at."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_args: stopping.set())
    loops = [Loop(name, step, stopping) for name, step in steps.items()]
    for loop in loops:
        loop.thread.start()
    log.info("consume.started", loops=[loop.name for loop in loops])
    for loop in loops:
        loop.thread.join()
