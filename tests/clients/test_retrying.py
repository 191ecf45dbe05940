"""The Python clients ask again where that is safe, and only there."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest
from pilot_client import (
    AnswerLost,
    ConnectionFailed,
    Forbidden,
    GatewayFailed,
    IdempotencyKeyReused,
    InvalidRequest,
    NotFound,
    OptInRequired,
    Pilot,
    PilotError,
    RateLimited,
    Refusal,
    Retrying,
    ServerFailed,
    StillRunning,
    Unauthenticated,
    Unavailable,
)

from tests.clients.conftest import AT_ONCE, Account
from tests.clients.proxy import Fault, Lose, Proxy, Refuse
from tests.factories import make_key

ANA = "+5511999990000"
BUSY = Refuse(503, "unavailable", {"Retry-After": "0"})
SLOW_DOWN = Refuse(429, "rate_limited", {"Retry-After": "0"})
RUNNING = Refuse(409, "still_running")


# --- asks again -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Lose(), BUSY, SLOW_DOWN, RUNNING, Refuse(502), Refuse(504)])
def test_sends_once_whatever_happens_on_the_way(
    pilot: Pilot, proxy: Proxy, account: Account, fault: Fault
) -> None:
    proxy.plan.extend([fault, fault])

    sent = pilot.messages.send(ANA, text="Olá")

    assert account.messages.get().pk == sent.id
    assert len(proxy.seen) == 3
    assert len(set(proxy.keys)) == 1
    assert proxy.keys[0]


def test_sends_a_batch_once_whatever_happens_on_the_way(pilot: Pilot, proxy: Proxy, account: Account) -> None:
    proxy.plan.extend([Lose(), BUSY])
    result = pilot.messages.send_batch([{"to": ANA, "text": "Olá"}, {"to": ANA, "text": "Oi"}])
    assert [item.replayed for item in result.results] == [True, True]
    assert account.messages.count() == 2


def test_makes_a_key_for_each_message_unless_it_is_given_one(pilot: Pilot, proxy: Proxy) -> None:
    pilot.messages.send(ANA, text="Olá")
    pilot.messages.send(ANA, text="Olá")
    first = pilot.messages.send(ANA, text="Olá", idempotency_key="order-1042")
    again = pilot.messages.send(ANA, text="Olá", idempotency_key="order-1042")
    assert len(set(proxy.keys)) == 3
    assert first.id == again.id


def test_reads_again(pilot: Pilot, proxy: Proxy) -> None:
    proxy.plan.extend([Lose(), BUSY, Refuse(502), Refuse(504)])
    assert pilot.usage.get().accepted == 0
    assert len(proxy.seen) == 5


def test_asks_again_when_the_server_said_that_it_did_nothing(pilot: Pilot, proxy: Proxy) -> None:
    proxy.plan.append(SLOW_DOWN)
    pilot.templates.create("novo", category="utility", text="Oi")
    assert proxy.seen == ["POST /api/templates"] * 2


def test_asks_again_when_the_server_was_not_reached(account: Account, server: str) -> None:
    with Pilot(server, account.raw, retrying=AT_ONCE) as client:
        client._transport.http = _Unreachable(client._transport.http, times=2)  # type: ignore[assignment]
        client.templates.create("novo", category="utility", text="Oi")
    assert account.key.project.templates.filter(name="novo").count() == 1


class _Unreachable:
    def __init__(self, http: httpx.Client, *, times: int) -> None:
        self._http = http
        self._times = times

    def request(self, **arguments: Any) -> httpx.Response:
        self._times -= 1
        if self._times >= 0:
            with socket.create_server(("127.0.0.1", 0)) as closing:
                nobody = f"http://127.0.0.1:{closing.getsockname()[1]}"
            return httpx.request("GET", nobody)  # a refused connection, as httpx tells it
        return self._http.request(**arguments)

    def close(self) -> None:
        self._http.close()


# --- does not ask again -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "kind"), [(Lose(), AnswerLost), (BUSY, Unavailable), (Refuse(502), GatewayFailed)]
)
def test_does_not_repeat_what_may_have_been_done(
    pilot: Pilot, proxy: Proxy, account: Account, fault: Fault, kind: type[PilotError]
) -> None:
    proxy.plan.append(fault)
    with pytest.raises(kind):
        pilot.keys.issue("caixa", scopes=["messages:read"])
    assert proxy.seen == ["POST /api/keys"]
    assert account.key.project.api_keys.count() == (2 if isinstance(fault, Lose) else 1)


def test_gives_up_after_the_last_attempt(pilot: Pilot, proxy: Proxy, account: Account) -> None:
    proxy.plan.extend([Lose()] * 9)
    with pytest.raises(AnswerLost):
        pilot.messages.send(ANA, text="Olá")
    assert len(proxy.seen) == AT_ONCE.attempts
    assert account.messages.count() == 1


@pytest.mark.parametrize("fault", [Refuse(500, "internal"), Refuse(400, "invalid"), Refuse(418)])
def test_does_not_repeat_what_would_be_refused_again(pilot: Pilot, proxy: Proxy, fault: Refuse) -> None:
    proxy.plan.append(fault)
    with pytest.raises(Refusal) as raised:
        pilot.messages.send(ANA, text="Olá")
    assert len(proxy.seen) == 1
    assert raised.value.code == (fault.code or "http_418")


def test_does_not_wait_longer_than_it_was_told_to(pilot: Pilot, proxy: Proxy) -> None:
    proxy.plan.append(Refuse(429, "rate_limited", {"Retry-After": "3600"}))
    with pytest.raises(RateLimited) as raised:
        pilot.messages.send(ANA, text="Olá")
    assert (raised.value.retry_after, len(proxy.seen)) == (3600, 1)


def test_waits_longer_each_time_and_never_the_same() -> None:
    lost = AnswerLost("")
    waits = [[Retrying().wait(lost, attempt=attempt) for _once in range(20)] for attempt in range(1, 5)]
    for expected, those in zip([0.5, 1, 2, 4], waits, strict=True):
        assert all(wait is not None and expected / 2 <= wait <= expected for wait in those)
        assert len(set(those)) > 1
    assert Retrying().wait(lost, attempt=5) is None


# --- errors -----------------------------------------------------------------------------------------------


def test_says_what_is_wrong_with_which_field(pilot: Pilot) -> None:
    with pytest.raises(InvalidRequest) as raised:
        pilot.messages.send(ANA, text="Olá", category="news")
    error = raised.value
    assert (error.status, error.code, set(error.fields)) == (400, "invalid", {"category"})
    assert error.request_id
    assert "category" in str(error)


def test_has_a_class_for_each_meaning(pilot: Pilot, proxy: Proxy, account: Account) -> None:
    with pytest.raises(NotFound):
        pilot.messages.get("a/../../keys")
    with pytest.raises(OptInRequired):
        pilot.messages.send("+5547988887777", text="Olá")
    pilot.messages.send(ANA, text="Olá", idempotency_key="k")
    with pytest.raises(IdempotencyKeyReused):
        pilot.messages.send(ANA, text="Oi", idempotency_key="k")
    proxy.plan.extend([RUNNING] * AT_ONCE.attempts)
    with pytest.raises(StillRunning):
        pilot.messages.send(ANA, text="Olá")
    proxy.plan.append(Refuse(500, "internal"))
    with pytest.raises(ServerFailed):
        pilot.usage.get()


def test_tells_a_wrong_key_from_one_that_may_not(server: str, account: Account) -> None:
    _key, reader = make_key(account.key.project, scopes=["messages:read"])
    with Pilot(server, "wrong") as client, pytest.raises(Unauthenticated):
        client.usage.get()
    with Pilot(server, reader) as client, pytest.raises(Forbidden):
        client.usage.get()


def test_says_that_nobody_was_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closing:
        nobody = f"http://127.0.0.1:{closing.getsockname()[1]}"
    with Pilot(nobody, "key", retrying=AT_ONCE) as client, pytest.raises(ConnectionFailed):
        client.usage.get()


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_does_not_wait_for_ever(silent: str) -> None:
    with (
        Pilot(silent, "key", timeout=0.05, retrying=Retrying(attempts=1)) as client,
        pytest.raises(AnswerLost),
    ):
        client.usage.get()


def test_does_not_take_a_mistake_for_a_network_that_fails() -> None:
    with Pilot("pilot.example.com", "key") as client, pytest.raises(httpx.UnsupportedProtocol):
        client.usage.get()


def test_refuses_a_moment_that_may_be_any(pilot: Pilot) -> None:
    with pytest.raises(ValueError, match="scheduled_at"):
        pilot.messages.send(ANA, text="Olá", scheduled_at=datetime(2026, 12, 1))
