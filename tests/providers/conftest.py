"""Peers that misbehave, closed after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.providers.peer import Behaviour, Peer


@pytest.fixture
def peer() -> Iterator[Callable[[Behaviour], Peer]]:
    peers: list[Peer] = []

    def start(behaviour: Behaviour) -> Peer:
        peers.append(Peer(behaviour))
        return peers[-1]

    yield start
    for one in peers:
        one.close()
