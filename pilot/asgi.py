"""The web process's door. HTTP goes to Django in a fixed set of threads; sockets will stand beside it.

Django's own ASGI handler starts a thread for every request of a synchronous view and moves each middleware across:
measured, it answers a fifth of what the same views answer this way.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

from a2wsgi import WSGIMiddleware
from django.conf import settings
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "pilot.settings")

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]


class WithContentLength:
    """Gives a body that comes in chunks its length, without which WSGI takes it for empty.

    Reads no more of it than Django would take, plus one byte, so that a longer one is refused as too large.
    """

    def __init__(self, app: App, *, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _comes_in_chunks(scope):
            await self._app(scope, receive, send)
            return
        body = await self._read(receive)
        headers = [*scope["headers"], (b"content-length", str(len(body)).encode())]
        await self._app(scope | {"headers": headers}, _once(body), send)

    async def _read(self, receive: Receive) -> bytes:
        body, more = b"", True
        while more and len(body) <= self._limit:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        return body[: self._limit + 1]


def _comes_in_chunks(scope: Any) -> bool:
    names = {name for name, _value in scope["headers"]}
    return b"transfer-encoding" in names and b"content-length" not in names


def _once(body: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


django = get_wsgi_application()

from messaging.api.batching import Batches, answer_all  # noqa: E402 - needs Django to be set up
from messaging.api.express import Express  # noqa: E402

long_way = WithContentLength(
    WSGIMiddleware(django, workers=settings.WEB_THREADS),  # type: ignore[arg-type]
    limit=settings.DATA_UPLOAD_MAX_MEMORY_SIZE,
)
application = Express(long_way, Batches(answer_all))
