"""A proxy between a client and the server that does to each request what a test planned for it."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx


@dataclass(frozen=True)
class Refuse:
    """Answers in the server's place."""

    status: int
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Lose:
    """Passes the request on, and cuts the connection in the place of the answer."""


Fault = Refuse | Lose


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def do_GET(self) -> None:
        self.proxy.treat(self)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def log_message(self, *_args: Any) -> None:
        """Says nothing."""


class Proxy:
    """`plan` holds what is done to the next requests; those after it pass. `seen` has their methods and paths."""

    def __init__(self, upstream: str) -> None:
        self.plan: deque[Fault] = deque()
        self.seen: list[str] = []
        self.keys: list[str | None] = []
        self.upstream = httpx.Client(base_url=upstream, timeout=20)
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=[0.05], daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.upstream.close()

    def treat(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.seen.append(f"{request.command} {request.path}")
        self.keys.append(request.headers.get("Idempotency-Key"))
        fault = self.plan.popleft() if self.plan else None
        if isinstance(fault, Refuse):
            _answer(request, fault.status, fault.headers, _refusal(fault))
            return
        answer = self._passed_on(request, body)
        if isinstance(fault, Lose):
            _cut(request)
            return
        _answer(request, answer.status_code, dict(answer.headers), answer.content)

    def _passed_on(self, request: BaseHTTPRequestHandler, body: bytes) -> httpx.Response:
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        return self.upstream.request(request.command, request.path, content=body, headers=headers)


def _refusal(fault: Refuse) -> bytes:
    if not fault.code:
        return b"<html>no</html>"
    return json.dumps({"error": {"code": fault.code, "message": "No.", "request_id": "r-1"}}).encode()


def _answer(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
    request.send_response(status)
    own = {"content-length", "transfer-encoding", "connection", "content-encoding", "date", "server"}
    for name, value in headers.items():
        if name.lower() not in own:
            request.send_header(name, value)
    if status != 204:
        request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    if status != 204:
        request.wfile.write(body)


def _cut(request: BaseHTTPRequestHandler) -> None:
    linger = struct.pack("ii", 1, 0)  # a reset, as when a machine dies
    request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    request.close_connection = True
    request.connection.shutdown(socket.SHUT_RDWR)
