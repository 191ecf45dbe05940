"""Free ports on 127.0.0.1, the same ones on each start where possible."""

from __future__ import annotations

import json
import socket
from pathlib import Path

HOST = "127.0.0.1"


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
    """The preferred port if it is free, else any other."""
    if preferred and is_free(preferred):
        return preferred
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class PortBook:
    """Remembers in a file which port each part had, so that addresses survive a restart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ports: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}

    def take(self, name: str, *, default: int) -> int:
        """The part's remembered port, else its default, else a free one; remembered from now on."""
        return self.keep(name, free_port(self._ports.get(name, default)))

    def keep(self, name: str, port: int) -> int:
        """Remember a port that was chosen elsewhere."""
        self._ports[name] = port
        self._path.write_text(json.dumps(self._ports, indent=2) + "\n")
        return port
