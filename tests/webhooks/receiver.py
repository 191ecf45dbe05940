"""A customer's server: answers as told, path by path, and remembers what it was sent."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it came. Header names are in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


@dataclass(frozen=True, slots=True)
class Reply:
    status: int = 200
    headers: dict[str, str] | None = None
    body: str = "ok"
    after: float = 0.0  # seconds


class Receiver:
    """Runs in a thread of its own. `reply(path, *replies)`: one after the other, the last for ever."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._replies: dict[str, list[Reply]] = defaultdict(lambda: [Reply()])
        self.in_flight: dict[str, int] = defaultdict(int)
        self.most_in_flight: dict[str, int] = defaultdict(int)
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._started.wait(10)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def reply(self, path: str, *replies: Reply) -> None:
        self._replies[path] = list(replies)

    def at(self, path: str) -> list[Call]:
        return [call for call in list(self.calls) if call.path == path]

    def ids(self, path: str) -> list[str]:
        return [call.id for call in self.at(path)]

    async def _handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.calls.append(Call(request.path, headers, body, time.monotonic()))
        waiting = self._replies[request.path]
        reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        self.in_flight[request.path] += 1
        self.most_in_flight[request.path] = max(
            self.most_in_flight[request.path], self.in_flight[request.path]
        )
        if reply.after:
            await asyncio.sleep(reply.after)
        self.in_flight[request.path] -= 1
        return web.Response(status=reply.status, headers=reply.headers or {}, text=reply.body)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = self._loop.run_until_complete(self._serve())
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _serve(self) -> web.AppRunner:
        application = web.Application()
        application.router.add_route("*", "/{tail:.*}", self._handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port: int = runner.addresses[0][1]
        return runner


def eventually(true: Callable[[], Any], *, within: float = 15.0) -> None:
    """Waits until it is so. AssertionError when it is not in time."""
    until = time.monotonic() + within
    while not true():
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.02)
