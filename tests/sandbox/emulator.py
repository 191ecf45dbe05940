"""A sandbox in a process of its own, and a webhook receiver that remembers what it was sent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
KEY = "sandbox-test-key"
PATIENCE = 5.0
ALL_RECEIPTS = {"SERVER_ACK": 1, "DELIVERY_ACK": 1, "READ": 1}


def eventually(condition: Callable[[], Any], *, within: float = PATIENCE) -> Any:
    """Poll until the condition is truthy and return it; fail when it never is."""
    deadline = time.monotonic() + within
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {within} s"
        time.sleep(0.005)
    return result


class Emulator:
    """`api` speaks to it as Pilot would, `control` as a test does."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sandbox", *self._options],
            cwd=ROOT,
            env={**os.environ, "SANDBOX_API_KEY": KEY},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        self.ready_line = self.process.stdout.readline().strip()
        self.url = self.ready_line.rpartition(" ")[2]
        self.api = httpx.Client(base_url=self.url, headers={"apikey": KEY}, timeout=PATIENCE)
        self.control = httpx.Client(
            base_url=f"{self.url}/_sandbox", headers={"X-Sandbox-Key": KEY}, timeout=PATIENCE
        )

    def kill(self, sig: int = signal.SIGKILL) -> int:
        """Send the signal, if it still runs; answers the exit code."""
        self.process.send_signal(sig)
        code = self.process.wait(timeout=PATIENCE)
        assert self.process.stdout
        self.process.stdout.close()
        self.api.close()
        self.control.close()
        return code

    def create(
        self, name: str, *, webhook: str | None = None, pair: bool = True, **body: Any
    ) -> dict[str, Any]:
        if webhook:
            body["webhook"] = {"url": webhook, "events": [], **body.pop("hook", {})}
        answer = self.api.post(
            "/instance/create", json={"instanceName": name, "integration": "WHATSAPP-BAILEYS", **body}
        )
        assert answer.status_code == 201, answer.text
        if pair:
            self.do(name, "pair")
        return answer.json()

    def send(
        self, name: str, *, number: str = "5511987654321", text: str = "hi", **body: Any
    ) -> httpx.Response:
        return self.api.post(f"/message/sendText/{name}", json={"number": number, "text": text, **body})

    def state(self, name: str) -> str | None:
        answer = self.api.get(f"/instance/connectionState/{name}").json()
        return answer["instance"]["state"] if "instance" in answer else None

    def do(self, name: str, action: str, **body: Any) -> dict[str, Any]:
        answer = self.control.post(f"/instances/{name}/{action}", json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def arm(self, kind: str, **spec: Any) -> int:
        answer = self.control.post("/faults", json={"kind": kind, **spec})
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    def disarm(self) -> None:
        self.control.delete("/faults")

    def know(self, number: str, **facts: Any) -> None:
        assert self.control.post(f"/numbers/{number}", json=facts).is_success

    def ledger(self, **query: Any) -> list[dict[str, Any]]:
        return self.control.get("/ledger", params=query).json()["entries"]

    def requests(self) -> list[dict[str, Any]]:
        return self.control.get("/requests").json()["entries"]


@dataclass
class Received:
    path: str
    headers: Message
    body: dict[str, Any]
    raw: bytes = b""
    at: float = field(default_factory=time.monotonic)


class Receiver:
    """Answers `status` on /fail<status>/..., what `script` says next on other paths, else 200."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.script: list[int] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.received.append(Received(self.path, self.headers, json.loads(raw), raw))
                self.send_response(receiver.status_for(self.path))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_args: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def status_for(self, path: str) -> int:
        if path.startswith("/fail"):
            return int(path[5:8])
        return self.script.pop(0) if self.script else 200

    def of(self, event: str, *, instance: str | None = None) -> list[Received]:
        return [
            r
            for r in list(self.received)
            if r.body["event"] == event and instance in (None, r.body["instance"])
        ]

    def statuses(self) -> Counter[str]:
        """How often each receipt status came: deliveries run side by side and keep no order."""
        return Counter(r.body["data"]["status"] for r in self.of("messages.update"))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
