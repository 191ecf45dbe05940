"""Free ports, and the book that remembers them."""

from __future__ import annotations

import socket
from pathlib import Path

from launcher.ports import SERVER_PORTS, PortBook, free_port


def test_takes_the_preferred_port_only_while_it_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert free_port(port) != port

    assert free_port(port) == port


def test_stays_clear_of_the_ports_of_outgoing_connections() -> None:
    assert free_port() in SERVER_PORTS


def test_remembers_ports_by_name(tmp_path: Path) -> None:
    book = PortBook(tmp_path / "ports.json")
    web = book.take("web", default=free_port())

    again = PortBook(tmp_path / "ports.json")

    assert again.take("web", default=1) == web
