"""What somebody else's URL may make us call: nothing that is not public, whatever way it is written or resolved."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import pytest

from pilot import ssrf
from pilot.outbound import Answer, Outbound, Unanswered
from pilot.ssrf import Policy, Refused
from tests.pilot.names import AsksServer, NameServer, Says
from tests.providers.peer import Peer, answer

PUBLIC = "93.184.215.14"

# Hosts as they stand in a URL. Each is refused when it is saved, and again when it is called.
HOSTILE = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "0",
    "2130706433",  # 127.0.0.1 in decimal
    "017700000001",  # in octal
    "0x7f000001",  # in hexadecimal
    "0177.0.0.1",
    "0x7f.0.0.1",
    "0x7f.1",
    "127.0.0.0x1",
    "00000127.0.0.1",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "localhost.localdomain.",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "100.64.0.1",  # carrier-grade NAT
    "169.254.169.254",  # metadata
    "2852039166",  # the same in decimal
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.170.2",  # metadata of ECS
    "100.100.100.200",  # of Alibaba
    "192.0.0.192",  # of Oracle
    "168.63.129.16",  # of Azure
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "192.88.99.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",  # IPv4 mapped
    "[::ffff:7f00:1]",
    "[::ffff:169.254.169.254]",
    "[::ffff:93.184.215.14]",  # even of a public one
    "[::127.0.0.1]",  # IPv4 compatible
    "[64:ff9b::7f00:1]",  # NAT64
    "[64:ff9b::169.254.169.254]",
    "[64:ff9b:1::10.0.0.1]",
    "[2002:7f00:1::]",  # 6to4
    "[2002:a9fe:a9fe::1]",
    "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",  # Teredo
    "[2001:db8::1]",
    "[fe80::1]",
    "[fe80::1%25eth0]",
    "[fc00::1]",
    "[fd00:ec2::254]",  # metadata of EC2
    "[fec0::1]",
    "[ff02::1]",
    "[100::1]",
    "\uff11\uff12\uff17.0.0.1",  # full-width digits
    "127\u30020\u30020\u30021",  # ideographic full stops
    "\u2460\u2461\u2466.0.0.1",  # circled digits
    "127.0.0.1\u3002example.com",
    "127%2e0%2e0%2e1",
    "%31%32%37.0.0.1",
    "lo\u00adcalhost",  # a soft hyphen
    "",
]
URLS = [
    *(f"http://{host}:{{port}}/hook" for host in HOSTILE),
    "http://example.com@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}@example.com/",
    "http://user:pass@example.com/",
    "http://example.com\\@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\t/",
    "http://127.0.0.1:{port}/ x",
    "http:127.0.0.1:{port}",
    "//127.0.0.1:{port}/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/_GET",
    "ftp://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}",
    "https://127.0.0.1:{port}",
    "http://example.com:22/",
    "http://example.com:0/",
    "http://example.com:99999/",
    "http://example.com:port/",
]


@pytest.fixture
def inside() -> Iterator[Peer]:
    """A server of ours that nobody outside should reach."""
    peer = Peer(answer(b"secret"))
    yield peer
    peer.close()


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every address that a TCP connection was tried to."""
    tried: list[Any] = []
    connect = socket.socket.connect

    def recorded(self: socket.socket, address: Any) -> None:
        if self.type == socket.SOCK_STREAM:
            tried.append(address)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", recorded)
    return tried


def port_of(peer: Peer) -> int:
    return int(peer.url.rpartition(":")[2])


def call_all(urls: list[str], policy: Policy, resolver: Any = None) -> list[Answer | Unanswered]:
    async def attempt() -> list[Answer | Unanswered]:
        outbound = Outbound(policy, resolver=resolver)
        try:
            return [await _exchange(outbound, url) for url in urls]
        finally:
            await outbound.aclose()

    return asyncio.run(attempt())


async def _exchange(outbound: Outbound, url: str) -> Answer | Unanswered:
    try:
        return await outbound.exchange("POST", url, headers={}, timeout=5, body_limit=100)
    except Unanswered as error:
        return error


def call(url: str, policy: Policy, resolver: Any = None) -> Any:
    return call_all([url], policy, resolver)[0]


def allowing(peer: Peer, *networks: str) -> Policy:
    """The port is not what stands in the way."""
    return Policy(networks=tuple(ip_network(text) for text in networks), ports={80, 443, port_of(peer)})


def test_knows_more_than_forty_hostile_forms() -> None:
    assert len(set(URLS)) >= 40


@pytest.mark.parametrize("form", URLS)
def test_refuses_a_hostile_url_when_it_is_saved(inside: Peer, form: str) -> None:
    url = form.replace("{port}", str(port_of(inside)))

    with pytest.raises(Refused):
        ssrf.check_url(url, allowing(inside))


def test_connects_to_no_hostile_url(inside: Peer, connected: list[Any]) -> None:
    """Whoever comes past the first judgement, for whatever reason, meets the second."""
    urls = [form.replace("{port}", str(port_of(inside))) for form in URLS]

    results = call_all(urls, allowing(inside), Says(lambda host: ["127.0.0.1"]))

    answered = [url for url, result in zip(urls, results, strict=True) if isinstance(result, Answer)]
    assert answered == []
    assert connected == []
    assert inside.requests == []


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["10.1.2.3"], [PUBLIC, "127.0.0.1"], ["::1"], ["64:ff9b::a00:1"], ["169.254.169.254"]],
    ids=str,
)
def test_refuses_a_name_that_leads_inside(inside: Peer, connected: list[Any], addresses: list[str]) -> None:
    url = f"http://hooks.example.com:{port_of(inside)}/"
    ssrf.check_url(url, allowing(inside))

    assert call(url, allowing(inside), Says(lambda host: addresses)).code == "refused"
    assert connected == []


def test_gains_nothing_by_resolving_differently_the_second_time(inside: Peer, connected: list[Any]) -> None:
    """DNS rebinding: public for whoever checks first, and inside for whoever connects."""
    server = NameServer(PUBLIC, "127.0.0.1")
    url = f"http://rebind.example.com:{port_of(inside)}/"
    checked = asyncio.run(AsksServer(server).resolve("rebind.example.com", 80))[0]["host"]
    ssrf.check_address(checked, 80, allowing(inside))

    refused = call(url, allowing(inside), AsksServer(server))

    server.close()
    assert server.asked == 2
    assert refused.code == "refused"
    assert connected == []


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/hook",
        "http://example.com",
        "https://hooks.example.com:8443/a?b=c#d",
        "https://xn--bcher-kva.example/",
        f"https://{PUBLIC}/",
        "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]/",
        "https://1.example.com/",
    ],
)
def test_lets_public_urls_pass(url: str) -> None:
    ssrf.check_url(url, Policy(ports={80, 443, 8443}))


def test_permits_what_the_operator_permits(inside: Peer) -> None:
    policy = Policy(networks=(ip_network("127.0.0.0/8"),), ports={443})
    ssrf.check_url(inside.url, policy)

    answered = call(inside.url, policy)

    assert (answered.status, answered.body) == (200, b"secret")


def test_permits_the_operators_network_and_no_more(inside: Peer) -> None:
    policy = allowing(inside, "10.0.0.0/8")
    ssrf.check_url("http://10.1.2.3:9000/", policy)

    for url in (inside.url, "http://192.168.0.1/", "http://[::1]/"):
        with pytest.raises(Refused):
            ssrf.check_url(url, policy)
    assert call(inside.url, policy).code == "refused"


def test_judges_an_internal_name_only_where_the_operator_has_networks(inside: Peer) -> None:
    url = f"http://intranet:{port_of(inside)}/"
    ssrf.check_url(url, allowing(inside, "127.0.0.0/8"))

    assert call(url, allowing(inside, "127.0.0.0/8"), Says(lambda host: ["127.0.0.1"])).status == 200
