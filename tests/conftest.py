"""What every test gets: the frozen moment, and a network that ends at this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import datetime
from ipaddress import ip_address
from typing import Any

import pytest

from pilot.redis import client
from tests import factories


@pytest.fixture
def now() -> datetime:
    """The moment at which tests take place, unless they move it."""
    return factories.NOW


@pytest.fixture
def without_redis(settings: Any) -> Iterator[None]:
    """Redis refuses every connection."""
    settings.REDIS_URL = "redis://127.0.0.1:9/0"
    client.cache_clear()
    yield
    client.cache_clear()


@pytest.fixture(autouse=True, scope="session")
def _loopback_only() -> Iterator[None]:
    """Refuses every connection that would leave this machine."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in {socket.AF_INET, socket.AF_INET6} and not _is_loopback(address[0]):
            raise OSError(f"tests may only connect to this machine, not to {address[0]}")
        connect(self, address)

    socket.socket.connect = guarded  # type: ignore[method-assign]
    yield
    socket.socket.connect = connect  # type: ignore[method-assign]


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
