"""A running sandbox with short waits, emptied for each test, and a receiver for its webhooks."""

from __future__ import annotations

import signal
from collections.abc import Iterator

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
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()
