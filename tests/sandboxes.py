"""A running sandbox for tests outside tests/sandbox. A conftest that imports both fixtures gives them to its folder."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from instances.models import EvolutionServer
from tests.factories import make_server
from tests.sandbox.emulator import KEY, Emulator


@pytest.fixture(scope="session")
def sandbox_process() -> Iterator[Emulator]:
    """One process for the session, with short waits."""
    emulator = Emulator("--wait-scale", "0.02", "--retry-scale", "0.001", "--receipts-after", "0.02,0.06,0.1")
    yield emulator
    emulator.kill(signal.SIGTERM)


@pytest.fixture
def sandbox(sandbox_process: Emulator) -> Emulator:
    """An empty sandbox."""
    sandbox_process.control.post("/reset")
    return sandbox_process


def server_of(emulator: Emulator) -> EvolutionServer:
    """The row of an Evolution server that is this sandbox."""
    return make_server(url=emulator.url, api_key=KEY)
