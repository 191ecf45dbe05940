"""The short way in: which requests it takes, and that it answers as the long way does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from pytest_django import Settings

from accounts.models import ApiKey
from messaging.api.batching import Ask, Batches, Reply
from messaging.api.express import Express
from messaging.models import IdempotencyKey, Message
from tests import factories
from tests.webs import running_web

OWN = {"to": "+5511999990000", "text": "Olá"}

# --- over HTTP --------------------------------------------------------------------------------------------

VARYING = {"date", "location", "x-request-id", "content-length", "ratelimit"}


@pytest.fixture
def sender(transactional_db: None) -> tuple[ApiKey, str]:
    return factories.make_sender()


@pytest.fixture
def web(sender: tuple[ApiKey, str]) -> Iterator[httpx.Client]:
    with running_web(sender[1]) as client:
        yield client


KINDS: list[dict[str, str]] = [
    {},
    {"Accept-Language": "en-GB,en;q=0.9"},
    {"Accept-Language": "xx"},
    {"X-Forwarded-Proto": "https"},
    {"X-Request-Id": "mine-1"},
    {"Idempotency-Key": "k-1"},
]


def test_answers_as_the_long_way_does(web: httpx.Client) -> None:
    for headers in KINDS:
        express = web.post("/api/messages", json=OWN, headers=headers)
        once = {"Idempotency-Key": "k-2"} if "Idempotency-Key" in headers else {}
        long = web.post("/api/messages", json=OWN, headers=headers | once | {"Cookie": "a=b"})

        assert (express.status_code, long.status_code) == (202, 202)
        assert _constant(express) == _constant(long)
        assert _constant_fields(express) == _constant_fields(long)
        for answer in (express, long):
            assert answer.headers["location"] == f"/api/messages/{answer.json()['id']}"
            assert answer.headers["x-request-id"] == headers.get(
                "X-Request-Id", answer.headers["x-request-id"]
            )
            assert Message.objects.filter(pk=answer.json()["id"]).exists()


def _constant(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in VARYING}


def _constant_fields(answer: httpx.Response) -> list[tuple[str, Any]]:
    own = {"id", "created_at", "deliver_until", "position", "expected_at"}
    return [(name, None if name in own else value) for name, value in answer.json().items()]


RIGHT = json.dumps(OWN).encode()
REFUSED: list[tuple[bytes, dict[str, str], tuple[int, str]]] = [
    (b"{", {}, (400, "malformed_json")),
    (b'{"to": "12", "text": "a"}', {}, (400, "invalid_number")),
    (b'{"to": "+5511999990000", "text": "a", "texxt": "b"}', {}, (400, "invalid")),
    (RIGHT, {"apikey": "pilot_live_00000000_wrong"}, (401, "unauthenticated")),
    (RIGHT, {"apikey": ""}, (401, "unauthenticated")),
    (RIGHT, {"Idempotency-Key": "a b"}, (400, "invalid")),
    (RIGHT, {"Content-Type": "text/plain"}, (415, "unsupported_media_type")),
    (RIGHT, {"Accept": "text/html"}, (406, "not_acceptable")),
    (RIGHT, {"Host": "elsewhere.example"}, (400, "bad_request")),
]


def test_leaves_every_refusal_to_the_long_way(web: httpx.Client) -> None:
    json_type = {"Content-Type": "application/json"}
    for content, headers, expected in REFUSED:
        answer = web.post("/api/messages", content=content, headers=json_type | headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == expected
    assert not Message.objects.exists()


def test_takes_each_of_many_at_once_for_itself(web: httpx.Client) -> None:
    """200 requests of three kinds from 40 clients: good ones, bad ones, and 20 keys used five times each."""

    def ask(number: int) -> tuple[int, int]:
        kind = number % 4
        body = OWN | {"to": "12"} if kind == 3 else OWN
        headers = {"Idempotency-Key": f"k-{number // 10}"} if kind < 2 else {}
        return kind, web.post("/api/messages", json=body, headers=headers).status_code

    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(ask, range(200)))

    assert {status for kind, status in answers if kind == 3} == {400}
    assert {status for kind, status in answers if kind == 2} == {202}
    assert {status for kind, status in answers if kind < 2} <= {202, 409}
    assert IdempotencyKey.objects.count() == 20
    assert Message.objects.count() == 50 + 20


# --- which requests it takes ------------------------------------------------------------------------------

ORDINARY = {
    "host": "127.0.0.1",
    "apikey": "pilot_live_x",
    "content-type": "application/json",
    "content-length": "2",
}
DONE = Reply(202, {"id": "1"}, {})


def ways(
    headers: dict[str, str] = ORDINARY,
    *,
    reply: Reply | None = DONE,
    messages: Sequence[dict[str, Any]] = ({"type": "http.request", "body": b"{}", "more_body": False},),
    **scope: Any,
) -> tuple[list[bytes], list[bytes], int | None]:
    """The bodies that went the short way and the long way, and the status that the short way answered."""
    short: list[bytes] = []
    long: list[bytes] = []
    sent: list[dict[str, Any]] = []

    def answer_all(asks: Sequence[Ask]) -> list[Reply | None]:
        short.extend(ask.body for ask in asks)
        return [reply] * len(asks)

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        long.append(body)

    async def ask() -> None:
        rest = list(messages)

        async def receive() -> dict[str, Any]:
            return rest.pop(0)

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        named = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        request = {
            "type": "http",
            "method": "POST",
            "path": "/api/messages",
            "scheme": "http",
            "query_string": b"",
            "headers": named,
        }
        await Express(app, Batches(answer_all))(request | scope, receive, send)

    asyncio.run(ask())
    return short, long, sent[0]["status"] if sent else None


def test_takes_an_ordinary_request() -> None:
    assert ways() == ([b"{}"], [], 202)


def test_takes_a_body_in_parts() -> None:
    parts = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.request", "body": b"}", "more_body": False},
    ]
    assert ways(messages=parts) == ([b"{}"], [], 202)
    assert ways(messages=parts, reply=None) == ([b"{}"], [b"{}"], None)


@pytest.mark.parametrize(
    "headers",
    [
        {"cookie": "sessionid=1"},
        {"authorization": "Bearer x"},
        {"pilot-version": "2020-01-01"},
        {"accept": "text/html"},
        {"content-type": "text/plain"},
        {"content-type": ""},
        {"content-encoding": "gzip"},
        {"content-length": ""},
        {"content-length": "99999999"},
        {"content-length": "-1"},
        {"transfer-encoding": "chunked"},
        {"host": "elsewhere.example"},
        {"host": ""},
        {"idempotency_key": "k-1"},  # WSGI takes it for the one with a hyphen
        {"accept-language": "a" * 501},
    ],
)
def test_leaves_what_is_special_to_the_long_way(headers: dict[str, str]) -> None:
    assert ways(ORDINARY | headers) == ([], [b"{}"], None)


@pytest.mark.parametrize(
    "scope",
    [{"method": "GET"}, {"path": "/api/messages/1"}, {"path": "/api/messages/"}, {"query_string": b"a=1"}],
)
def test_leaves_other_requests_to_the_long_way(scope: dict[str, Any]) -> None:
    assert ways(**scope) == ([], [b"{}"], None)


@pytest.mark.parametrize("apikey", ["", "  ", "chave-é"])
def test_leaves_odd_keys_to_the_long_way(apikey: str) -> None:
    assert ways(ORDINARY | {"apikey": apikey}) == ([], [b"{}"], None)


def test_leaves_a_redirect_to_https_to_the_long_way(settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert ways() == ([], [b"{}"], None)
    assert ways(ORDINARY | {"x-forwarded-proto": "https"}) == ([b"{}"], [], 202)


@pytest.mark.parametrize("begun", [[], [{"type": "http.request", "body": RIGHT, "more_body": True}]])
def test_takes_half_a_request_for_none(begun: list[dict[str, Any]]) -> None:
    """The client left before all had come; what had come may look whole."""
    assert ways(messages=[*begun, {"type": "http.disconnect"}]) == ([], [], None)
