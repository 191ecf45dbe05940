"""Peers that misbehave, closed after each test, and a sandbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.providers.peer import Behaviour, Peer
from tests.sandboxes import sandbox, sandbox_process

__all__ = ["peer", "sandbox", "sandbox_process"]


@pytest.fixture
def peer() -> Iterator[Callable[[Behaviour], Peer]]:
    peers: list[Peer] = []

    def start(behaviour: Behaviour) -> Peer:
        peers.append(Peer(behaviour))
        return peers[-1]

    yield start
    for one in peers:
        one.close()
