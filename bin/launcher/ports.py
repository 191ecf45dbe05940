"""Free ports on 127.0.0.1, the same ones on each start where possible."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from launcher.files import read_json, write_json

HOST = "127.0.0.1"
# Below the range from which systems number outgoing connections: one of those could take a port between
# our look and the server's start, which for a new PostgreSQL is a second later.
SERVER_PORTS = range(12_000, 32_000)


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port(preferred: int = 0) -> int:
    """The preferred port if it is free, else any other that outgoing connections do not get."""
    if preferred and is_free(preferred):
        return preferred
    return next(port for port in random.sample(SERVER_PORTS, len(SERVER_PORTS)) if is_free(port))


class PortBook:
    """Remembers in a file which port each part had, so that addresses survive a restart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ports: dict[str, int] = read_json(path)

    def take(self, name: str, *, default: int) -> int:
        """The part's remembered port, else its default, else a free one; remembered from now on."""
        return self.keep(name, free_port(self._ports.get(name, default)))

    def keep(self, name: str, port: int) -> int:
        """Remember a port that was chosen elsewhere."""
        self._ports[name] = port
        write_json(self._path, self._ports)
        return port
