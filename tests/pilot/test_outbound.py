"""HTTP to addresses that customers choose: bounded, and remembering nothing."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from ipaddress import ip_network

import pytest

from pilot.outbound import Answer, Outbound, Unanswered
from pilot.ssrf import Policy
from tests.providers import peer
from tests.providers.peer import Behaviour, Peer, answer

HERE = Policy(networks=(ip_network("127.0.0.0/8"),))


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    made: list[Peer] = []
    yield made
    for one in made:
        one.close()


def exchange(url: str, *, times: int = 1, timeout: float = 5, limit: int = 1000) -> list[Answer]:
    async def attempt() -> list[Answer]:
        outbound = Outbound(HERE)
        try:
            return [
                await outbound.exchange(
                    "POST", url, headers={"X-Own": "1"}, content=b"{}", timeout=timeout, body_limit=limit
                )
                for _time in range(times)
            ]
        finally:
            await outbound.aclose()

    return asyncio.run(attempt())


def failing(peers: list[Peer], behaviour: Behaviour) -> str:
    peers.append(Peer(behaviour))
    with pytest.raises(Unanswered) as failed:
        exchange(peers[-1].url, timeout=0.5)
    return failed.value.code


def test_follows_no_redirect(peers: list[Peer]) -> None:
    target = Peer(answer(b""))
    source = Peer(answer(b"", status="302 Found", headers=f"Location: {target.url}/\r\n"))
    peers += [target, source]

    assert [one.status for one in exchange(source.url)] == [302]
    assert target.requests == []


def test_reads_only_the_beginning_of_a_body(peers: list[Peer]) -> None:
    peers.append(Peer(answer(b"x" * 5_000_000)))

    assert exchange(peers[0].url, limit=1000)[0].body == b"x" * 1000


def test_unpacks_nothing(peers: list[Peer]) -> None:
    peers.append(Peer(answer(b"\x1f\x8b-packed", headers="Content-Encoding: gzip\r\n")))

    assert exchange(peers[0].url)[0].body == b"\x1f\x8b-packed"
    assert b"accept-encoding: identity" in peers[0].requests[0].lower()


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        (peer.hang, "timeout"),
        (peer.trickle_headers, "timeout"),
        (peer.trickle_body, "timeout"),
        (peer.reset, "cut"),
        (peer.hang_up, "cut"),
        (peer.babble, "cut"),
    ],
)
def test_tells_how_it_went_unanswered(peers: list[Peer], behaviour: Behaviour, code: str) -> None:
    started = time.monotonic()

    assert failing(peers, behaviour) == code
    assert time.monotonic() - started < 3


def test_tells_that_nobody_listens() -> None:
    with pytest.raises(Unanswered) as failed:
        exchange("http://127.0.0.1:9/")

    assert failed.value.code == "unreachable"


def test_tells_that_a_connection_is_not_secure(peers: list[Peer]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        threading.Thread(target=_greet, args=(plain,), daemon=True).start()
        with pytest.raises(Unanswered) as failed:
            exchange(f"https://127.0.0.1:{plain.getsockname()[1]}/")

    assert failed.value.code == "tls"


def _greet(plain: socket.socket) -> None:
    connection, _address = plain.accept()
    with connection:
        connection.sendall(b"220 mail.example ESMTP\r\n")
        connection.recv(4096)


def test_keeps_no_cookie(peers: list[Peer]) -> None:
    """Two customers may share a host."""
    peers.append(Peer(answer(b"", headers="Set-Cookie: session=1; Path=/\r\n")))

    exchange(peers[0].url, times=2)

    assert len(peers[0].requests) == 2
    assert b"cookie" not in peers[0].requests[1].lower()


def test_ignores_proxy_settings(peers: list[Peer], monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, peer_ = Peer(answer(b"proxied")), Peer(answer(b"direct"))
    peers += [proxy, peer_]
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.url)

    assert exchange(peer_.url)[0].body == b"direct"
    assert proxy.requests == []
