"""The short way in for POST /api/messages, in front of the long one.

The long way costs each request a thread, a dozen middlewares and five statements. Here a request waits until the batch
before it is written, then goes with the next one. Only what is ordinary goes this way, and it only ever answers 202,
429 when its key asks too often, or 503 when it cannot know whether the database wrote. All else, refusals too, goes the
long way untouched, which says why.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, lru_cache
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.http.request import split_domain_port, validate_host
from django.utils import translation
from prometheus_client import Histogram

from accounts.api.limits import COUNTED
from messaging.api.batching import Ask, Batches, Reply
from pilot.requests import API_HEADERS, request_id_for

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PATH = "/api/messages"
JSON = {b"application/json", b"application/json; charset=utf-8", b"application/json;charset=utf-8"}
ANY = {b"*/*", b"application/json", b"application/json, */*", b"application/json, text/plain, */*"}
# With one of these a request is not ordinary.
SPECIAL = {
    b"cookie",
    b"authorization",
    b"pilot-version",
    b"content-encoding",
    b"transfer-encoding",
    b"expect",
}
LONGEST_LANGUAGE = 500  # characters; Django looks at no more of it, and what is remembered must be bounded

# No middleware of Django's counts what goes this way.
SECONDS = Histogram("pilot_express_seconds", "Messages accepted the short way.", ["status"])


class Express:
    """ASGI middleware: answers what it can with `batches`, and passes the rest on."""

    def __init__(self, app: App, batches: Batches) -> None:
        self._app = app
        self._batches = batches

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_ordinary(scope):
            await self._app(scope, receive, send)
            return
        messages = await _read(receive)
        if messages[-1]["type"] != "http.request":
            return  # the client left before all had come; what had come may look whole
        started = time.perf_counter()
        ask = _ask(scope, messages)
        reply = await self._batches.answer(ask) if ask else None
        if ask is None or reply is None:
            counted = {COUNTED: ask.drawn} if ask and ask.drawn else {}
            await self._app(scope | counted, _replaying(messages, receive), send)
            return
        await _respond(send, ask, reply, secure=_is_secure(scope))
        SECONDS.labels(reply.status).observe(time.perf_counter() - started)


def _is_ordinary(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST" or scope["query_string"]:
        return False
    headers = dict(scope["headers"])
    return (
        len(headers) == len(scope["headers"])
        and not SPECIAL & headers.keys()
        and not any(b"_" in name for name in headers)  # WSGI takes it for a hyphen
        and headers.get(b"content-type", b"").lower() in JSON
        and headers.get(b"accept", b"*/*") in ANY
        and len(headers.get(b"accept-language", b"")) <= LONGEST_LANGUAGE
        and _is_short(headers.get(b"content-length", b""))
        and _is_our_host(headers.get(b"host", b""))
        and (_is_secure(scope) or not settings.SECURE_SSL_REDIRECT)
    )


def _is_short(length: bytes) -> bool:
    return length.isdigit() and len(length) < 9 and int(length) <= settings.DATA_UPLOAD_MAX_MEMORY_SIZE


@lru_cache(maxsize=100)
def _is_our_host(host: bytes) -> bool:
    domain, _port = split_domain_port(host.decode("latin-1"))
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)


def _is_secure(scope: Scope) -> bool:
    name, value = settings.SECURE_PROXY_SSL_HEADER
    wanted = name.removeprefix("HTTP_").replace("_", "-").lower().encode()
    given = dict(scope["headers"]).get(wanted)
    return scope["scheme"] == "https" if given is None else given.split(b",")[0].strip() == value.encode()


async def _read(receive: Receive) -> list[dict[str, Any]]:
    """The messages that carry the body."""
    messages = [await receive()]
    while messages[-1].get("more_body"):
        messages.append(await receive())
    return messages


def _ask(scope: Scope, messages: Sequence[dict[str, Any]]) -> Ask | None:
    """None when the key is none that a client of ours would send."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    raw_key = headers.get(b"apikey", "").strip()
    if not raw_key.isascii() or not raw_key:
        return None
    return Ask(
        raw_key,
        b"".join(message.get("body", b"") for message in messages),
        headers.get(b"idempotency-key"),
        request_id_for(headers.get(b"x-request-id", "")),
        _language(headers.get(b"accept-language", "")),
    )


@lru_cache(maxsize=1000)
def _language(accepted: str) -> str:
    """As LocaleMiddleware would choose for a request without cookies."""
    request = HttpRequest()
    request.META["HTTP_ACCEPT_LANGUAGE"] = accepted
    return translation.get_language_from_request(request)


def _replaying(messages: Sequence[dict[str, Any]], receive: Receive) -> Receive:
    """What was read, once more, and then what follows."""
    rest = deque(messages)

    async def again() -> dict[str, Any]:
        return rest.popleft() if rest else await receive()

    return again


async def _respond(send: Send, ask: Ask, reply: Reply, *, secure: bool) -> None:
    body = json.dumps(reply.body, ensure_ascii=False, separators=(",", ":")).encode()
    limits = ask.drawn.headers if ask.drawn else {}
    own = {**reply.headers, **limits, "X-Request-Id": ask.request_id, "Content-Length": str(len(body))}
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in own.items()]
    await send(
        {
            "type": "http.response.start",
            "status": reply.status,
            "headers": [*_common_headers(ask.language, secure=secure), *headers],
        }
    )
    await send({"type": "http.response.body", "body": body})


@cache
def _common_headers(language: str, *, secure: bool) -> list[tuple[bytes, bytes]]:
    """What the long way adds to every answer. A test compares the two."""
    common = {
        "content-type": "application/json",
        "allow": "GET, POST, HEAD, OPTIONS",
        **{name.lower(): value for name, value in API_HEADERS.items()},
        "content-language": language,
        "vary": "Accept-Language",
        "x-frame-options": settings.X_FRAME_OPTIONS,
        "x-content-type-options": "nosniff",
        "referrer-policy": settings.SECURE_REFERRER_POLICY,
        "cross-origin-opener-policy": settings.SECURE_CROSS_ORIGIN_OPENER_POLICY,
    }
    if secure and settings.SECURE_HSTS_SECONDS:
        common["strict-transport-security"] = f"max-age={settings.SECURE_HSTS_SECONDS}"
    return [(name.encode(), value.encode()) for name, value in common.items()]
