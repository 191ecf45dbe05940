"""Performing calls over real sockets: above all, what a lost answer means."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from instances.providers import http
from instances.providers.base import (
    INTERNAL,
    MISCONFIGURED,
    NO_ANSWER,
    REJECTED_PAYLOAD,
    UNREACHABLE,
    Answer,
    Call,
    Outcome,
    ProviderError,
    Request,
)
from instances.providers.http import AsyncHttp, perform, perform_all
from tests.providers import peer as behaviours
from tests.providers.peer import Behaviour, Peer

KEY = "a-secret-key"
StartPeer = Callable[[Behaviour], Peer]


def echo(answer: Answer) -> Answer:
    return answer


def call(url: str, *, sends: bool = False, method: str = "POST", timeout: float = 2.0) -> Call[Answer]:
    request = Request(method, f"{url}/path?number=5511987654321", {"apikey": KEY}, {"a": 1}, timeout)
    return Call(request, read=echo, sends=sends)


def refusal(call: Call[Answer]) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        perform(call)
    return raised.value


@pytest.fixture
def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


# --- answers ---


def test_gives_the_answer_to_the_reader(peer: StartPeer) -> None:
    server = peer(behaviours.answer(b'{"ok": [1]}', status="201 Created", headers="Retry-After: 7\r\n"))

    answer = perform(call(server.url))

    assert (answer.status, answer.body, answer.headers["retry-after"]) == (201, {"ok": [1]}, "7")


def test_sends_method_path_headers_and_json(peer: StartPeer) -> None:
    server = peer(behaviours.answer(b"{}"))

    perform(call(server.url))

    (request,) = server.requests
    assert request.startswith(b"POST /path?number=5511987654321 HTTP/1.1\r\n")
    assert b"apikey: a-secret-key" in request
    assert request.endswith(b'\r\n\r\n{"a":1}')


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"a":', b"[" * 100_000, b"\xff\xfe"])
def test_gives_no_body_for_what_is_not_json(peer: StartPeer, body: bytes) -> None:
    server = peer(behaviours.answer(body, status="502 Bad Gateway"))

    assert perform(call(server.url)) == Answer(502, None, {"content-length": str(len(body))})


def test_follows_no_redirect(peer: StartPeer) -> None:
    target = peer(behaviours.answer(b"{}"))
    server = peer(
        behaviours.answer(b"", status="307 Temporary Redirect", headers=f"Location: {target.url}\r\n")
    )

    assert perform(call(server.url)).status == 307
    assert target.requests == []


def test_ignores_proxy_settings(peer: StartPeer, closed_port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", closed_port)
    monkeypatch.setenv("ALL_PROXY", closed_port)

    assert perform(call(peer(behaviours.answer(b"{}")).url)).status == 200


def test_raises_what_the_reader_raises(peer: StartPeer) -> None:
    error = ProviderError("rejected", "no", outcome=Outcome.REJECTED)

    def read(_answer: Answer) -> Answer:
        raise error

    request = call(peer(behaviours.answer(b"{}")).url).request
    assert refusal(Call(request, read, sends=True)) is error


# --- no answer ---


@pytest.mark.parametrize("sends", [True, False])
def test_retries_when_the_port_refuses(closed_port: str, sends: bool) -> None:
    error = refusal(call(closed_port, sends=sends))

    assert (error.code, error.outcome) == (UNREACHABLE, Outcome.RETRY)


@pytest.mark.parametrize(
    "url",
    [
        "http://no-such-host.invalid",
        "ftp://127.0.0.1",
        "http://[nonsense",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:x",
        "http://a\x00b",
        "http://\ud800",
        "http:///",
        "no address",
        "",
    ],
    ids=ascii,
)
def test_retries_when_there_is_nobody_to_reach(url: str) -> None:
    error = refusal(call(url, sends=True))

    assert (error.code, error.outcome) == (UNREACHABLE, Outcome.RETRY)


def test_retries_when_nobody_accepts_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        error = refusal(call(f"http://127.0.0.1:{address[1]}", sends=True, timeout=0.6))
        for one in waiting:
            one.close()

    assert (error.code, error.outcome) == (UNREACHABLE, Outcome.RETRY)


LOST = [
    behaviours.hang,
    behaviours.reset,
    behaviours.hang_up,
    behaviours.babble,
    behaviours.stop_short,
    behaviours.trickle_headers,
    behaviours.trickle_body,
]


@pytest.mark.parametrize("behaviour", LOST, ids=lambda behaviour: behaviour.__name__)
@pytest.mark.parametrize(("sends", "outcome"), [(True, Outcome.UNKNOWN), (False, Outcome.RETRY)])
def test_does_not_know_once_the_request_left(
    peer: StartPeer, behaviour: Behaviour, sends: bool, outcome: Outcome
) -> None:
    server = peer(behaviour)
    started = time.monotonic()

    error = refusal(call(server.url, sends=sends, timeout=0.4))

    assert (error.code, error.outcome) == (NO_ANSWER, outcome)
    assert len(server.requests) == 1
    assert time.monotonic() - started < 2


def test_refuses_an_endless_answer(peer: StartPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_LIMIT", 1000)

    assert perform(call(peer(behaviours.answer(b" " * 998 + b"{}")).url)).body == {}
    error = refusal(call(peer(behaviours.answer(b" " * 999 + b"{}")).url, sends=True))
    assert (error.code, error.outcome) == (NO_ANSWER, Outcome.UNKNOWN)


def test_takes_ten_megabytes_at_most() -> None:
    assert http.BODY_LIMIT == 10 * 1024 * 1024


# --- what is wrong with a call itself ---


@pytest.mark.parametrize("key", ["chave-é", "key\n", "a\x00b", "\ud800"], ids=ascii)
def test_waits_for_a_key_that_can_be_sent(peer: StartPeer, key: str) -> None:
    server = peer(behaviours.answer(b"{}"))

    error = refusal(Call(Request("POST", server.url, {"apikey": key}, {"a": 1}), read=echo, sends=True))

    assert (error.code, error.outcome) == (MISCONFIGURED, Outcome.INSTANCE_DOWN)
    assert server.requests == []


@pytest.mark.parametrize("body", ["\ud800", math.nan, object()], ids=["surrogate", "nan", "no JSON"])
def test_rejects_a_body_that_cannot_be_sent(peer: StartPeer, body: Any) -> None:
    server = peer(behaviours.answer(b"{}"))

    error = refusal(Call(Request("POST", server.url, {"apikey": KEY}, {"text": body}), read=echo, sends=True))

    assert (error.code, error.outcome) == (REJECTED_PAYLOAD, Outcome.REJECTED)
    assert server.requests == []


def broken(_answer: Answer) -> Answer:
    raise KeyError("key")


@pytest.mark.parametrize(("sends", "outcome"), [(True, Outcome.UNKNOWN), (False, Outcome.RETRY)])
def test_does_not_know_what_an_answer_says_that_breaks_its_reader(
    peer: StartPeer, sends: bool, outcome: Outcome
) -> None:
    request = call(peer(behaviours.answer(b"{}")).url).request

    with capture_logs() as lines:
        error = refusal(Call(request, read=broken, sends=sends))

    assert (error.code, error.outcome) == (INTERNAL, outcome)
    assert [line["log_level"] for line in lines if line["event"] == "provider.fault"] == ["error"]


@pytest.mark.parametrize(("sends", "outcome"), [(True, Outcome.UNKNOWN), (False, Outcome.RETRY)])
def test_does_not_know_after_a_fault_of_its_own(
    monkeypatch: pytest.MonkeyPatch, sends: bool, outcome: Outcome
) -> None:
    async def exchange(*_args: Any) -> Answer:
        raise RuntimeError("a bug")

    monkeypatch.setattr(AsyncHttp, "_exchange", exchange)

    error = refusal(call("http://127.0.0.1:9", sends=sends))

    assert (error.code, error.outcome) == (INTERNAL, outcome)


def test_one_bad_call_does_not_fail_the_others(peer: StartPeer) -> None:
    server = peer(behaviours.answer(b"{}"))
    good = call(server.url)
    bad = [
        Call(Request("POST", server.url, {"apikey": "é"}), read=echo),
        Call(Request("POST", server.url, {"apikey": KEY}, object()), read=echo),
        Call(Request("POST", "http://[::", {"apikey": KEY}), read=echo),
        Call(good.request, read=broken),
    ]

    first, *failed, last = perform_all([good, *bad, good])

    assert isinstance(first, Answer)
    assert isinstance(last, Answer)
    assert all(isinstance(error, ProviderError) for error in failed)


# --- many calls in one loop ---


def test_performs_many_calls_at_once(peer: StartPeer) -> None:
    server = peer(behaviours.answer(b"{}"))

    async def many() -> list[Answer]:
        pool = AsyncHttp(connections=20)
        answers = await asyncio.gather(*(pool.perform(call(server.url)) for _ in range(100)))
        await pool.aclose()
        return answers

    assert {answer.status for answer in asyncio.run(many())} == {200}
    assert len(server.requests) == 100


def test_performs_several_and_gives_each_its_own_result(peer: StartPeer, closed_port: str) -> None:
    good = peer(behaviours.answer(b"{}"))

    first, second, third = perform_all([call(good.url), call(closed_port), call(good.url)])

    assert isinstance(first, Answer)
    assert isinstance(third, Answer)
    assert isinstance(second, ProviderError)
    assert second.code == UNREACHABLE
    assert perform_all([]) == []


def test_performs_several_within_a_given_time(peer: StartPeer) -> None:
    hung, good = peer(behaviours.hang), peer(behaviours.answer(b"{}"))
    started = time.monotonic()

    results = perform_all(
        [call(hung.url, timeout=30), call(good.url), call(hung.url, timeout=30)], within=0.4
    )

    assert time.monotonic() - started < 2
    assert [isinstance(result, Answer) for result in results] == [False, True, False]


def test_never_repeats_a_send_on_a_kept_connection(peer: StartPeer) -> None:
    """Where a connection is used again and then breaks, nobody knows whether the second request was read."""
    replies = iter([behaviours.answer(b"{}"), behaviours.hang_up, behaviours.answer(b"{}")])
    server = peer(lambda connection, stopped: next(replies)(connection, stopped))

    async def twice() -> None:
        pool = AsyncHttp(connections=1)
        await pool.perform(call(server.url, sends=True))
        try:
            await pool.perform(call(server.url, sends=True))
        finally:
            await pool.aclose()

    with pytest.raises(ProviderError) as raised:
        asyncio.run(twice())
    assert raised.value.outcome == Outcome.UNKNOWN
    assert len(server.requests) == 2


def test_retries_what_never_got_a_connection(peer: StartPeer) -> None:
    server = peer(behaviours.hang)

    async def crowd() -> list[BaseException]:
        pool = AsyncHttp(connections=1)
        calls = (pool.perform(call(server.url, sends=True, timeout=0.6)) for _ in range(2))
        results = await asyncio.gather(*calls, return_exceptions=True)
        await pool.aclose()
        return [result for result in results if isinstance(result, BaseException)]

    outcomes = [error.outcome for error in asyncio.run(crowd()) if isinstance(error, ProviderError)]
    assert outcomes == [Outcome.UNKNOWN, Outcome.RETRY]
    assert len(server.requests) == 1


# --- secrets ---


def test_logs_neither_key_nor_query(peer: StartPeer, closed_port: str) -> None:
    with capture_logs() as lines:
        refusal(call(closed_port))
        refusal(call(peer(behaviours.hang_up).url, sends=True))

    assert [(line["event"], line["code"]) for line in lines] == [
        ("provider.call", UNREACHABLE),
        ("provider.call", NO_ANSWER),
    ]
    assert lines[0]["url"] == f"{closed_port}/path"
    assert KEY not in str(lines)
    assert "5511987654321" not in str(lines)


def test_errors_show_neither_key_nor_address(closed_port: str) -> None:
    error = refusal(call(closed_port))

    assert KEY not in str(error)
    assert closed_port not in str(error)
