"""A running sandbox with short waits, emptied for each test, and a receiver for its webhooks."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from tests.sandbox.emulator import Emulator, Receiver


@pytest.fixture(scope="session")
def _running() -> Iterator[Emulator]:
    emulator = Emulator("--wait-scale", "0.02", "--retry-scale", "0.001", "--receipts-after", "0.02,0.06,0.1")
    yield emulator
    emulator.kill(signal.SIGTERM)


@pytest.fixture
def sandbox(_running: Emulator) -> Emulator:
    _running.control.post("/reset")
    return _running


@pytest.fixture
def launch() -> Iterator[Callable[..., Emulator]]:
    """Starts sandboxes with options of their own; they end with the test."""
    launched: list[Emulator] = []

    def start(*options: str) -> Emulator:
        launched.append(Emulator(*options))
        return launched[-1]

    yield start
    for emulator in launched:
        emulator.kill()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()
