"""Stands in for the web process: /livez, /health and one message that goes its way."""

import json
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import standin

STEPS = ("queued", "sending", "submitted", "delivered", "read")
STEP_SECONDS = 0.05
WHY = "The instance is closed."

accepted_at: list[float] = []


def timeline() -> list[dict[str, str]]:
    """The events so far; stops at submitted when told to."""
    done = int((time.monotonic() - accepted_at[0]) / STEP_SECONDS) + 1
    steps = STEPS[:3] if "never-read" in standin.TROUBLE else STEPS
    return [
        {"at": f"2026-11-29T12:00:00.{200 * number:03}Z", "kind": "status", "status": status}
        for number, status in enumerate(steps[:done])
    ]


def health() -> dict[str, object]:
    """Report every kind whose process has written its pid down."""
    kinds = [kind for kind in ("worker", "beat", "consume") if (standin.REPORTS / f"{kind}.pid").exists()]
    ok = {"status": "ok", "progress_age_seconds": 0.0}
    return {"status": "ok", "processes": [{"name": kind, "kind": kind, **ok} for kind in kinds]}


class Handler(BaseHTTPRequestHandler):
    """The few paths that bin/run asks for."""

    def do_GET(self) -> None:
        """Answer a probe or a look at the message."""
        if self.path == "/livez":
            return self._answer(200, {})
        if self.path == "/health":
            return self._answer(200, health())
        if self.path.endswith("/events"):
            return self._answer(200, {"events": timeline()})
        return self._answer(200, self._message())

    def do_POST(self) -> None:
        """Accept the message, or refuse it when told to."""
        if "refuses" in standin.TROUBLE or self.headers["apikey"] != "key-1":
            return self._answer(422, {"error": {"code": "opted_out"}})
        accepted_at.append(time.monotonic())
        return self._answer(202, {"id": "m-1", "status": "queued"})

    def _message(self) -> dict[str, str]:
        if "fails" in standin.TROUBLE:
            return {"id": "m-1", "status": "failed", "why": WHY}
        return {"id": "m-1", "status": timeline()[-1]["status"], "why": WHY}

    def _answer(self, status: int, body: dict[str, object] | dict[str, str]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())


standin.report("web")
signal.signal(signal.SIGTERM, lambda *_: standin.stop("web"))
port = int(sys.argv[sys.argv.index("--port") + 1])
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
