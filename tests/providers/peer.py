"""A server that misbehaves on the wire as told: raw sockets, because HTTP servers are too polite."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable

Behaviour = Callable[[socket.socket, threading.Event], None]


class Peer:
    """Reads each request and then does what `behaviour` says; remembers the raw requests."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._stopped = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.requests: list[bytes] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._stopped.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _address = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while request := read_request(connection):
                self.requests.append(request)
                try:
                    self._behaviour(connection, self._stopped)
                except OSError:
                    return  # the other side gave up first
                if connection.fileno() == -1:
                    return


def read_request(connection: socket.socket) -> bytes:
    """One request with its body; empty when there is none any more."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = _receive(connection)
        if not chunk:
            return b""
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    while len(body) < _content_length(head):
        body += _receive(connection)
    return head + b"\r\n\r\n" + body


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except OSError:
        return b""


def _content_length(head: bytes) -> int:
    lines = [line.lower() for line in head.split(b"\r\n")]
    return next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)


def answer(body: bytes, *, status: str = "200 OK", headers: str = "") -> Behaviour:
    """A whole answer."""
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode()
    return lambda connection, _stopped: connection.sendall(head + body)


def hang(_connection: socket.socket, stopped: threading.Event) -> None:
    """Takes the request and says nothing."""
    stopped.wait(30)


def reset(connection: socket.socket, _stopped: threading.Event) -> None:
    """Takes the request and cuts the connection with a RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def hang_up(connection: socket.socket, _stopped: threading.Event) -> None:
    """Takes the request and closes the connection properly."""
    connection.close()


def babble(connection: socket.socket, _stopped: threading.Event) -> None:
    """Answers in no protocol."""
    connection.sendall(b"220 mail.example ESMTP\r\n\r\n")


def stop_short(connection: socket.socket, _stopped: threading.Event) -> None:
    """Promises more body than it sends."""
    connection.sendall(b'HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{"key"')
    connection.close()


def trickle_headers(connection: socket.socket, stopped: threading.Event) -> None:
    """Sends a header now and then, for ever."""
    connection.sendall(b"HTTP/1.1 201 Created\r\n")
    while not stopped.wait(0.05):
        connection.sendall(b"X-Wait: 1\r\n")


def trickle_body(connection: socket.socket, stopped: threading.Event) -> None:
    """Sends a body byte by byte, for ever."""
    connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 100000\r\n\r\n")
    while not stopped.wait(0.05):
        connection.sendall(b" ")
