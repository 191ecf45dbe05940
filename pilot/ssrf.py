"""Which addresses somebody else's URL may make us call (SSRF guard).

The text of a URL is judged when it is saved, for a clear error; what counts is the judgement of the very address, made
at the moment of connecting. A name that resolves differently the second time (DNS rebinding) therefore gains nothing.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Any
from urllib.parse import SplitResult, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from django.conf import settings
from django.utils.translation import gettext as _

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LONGEST_URL = 2000
PORTS = {"http": 80, "https": 443}
VISIBLE = re.compile(r"[\x21-\x7e]+")
LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
# What browsers and C libraries take for a number, and so for an address: 2130706433, 0x7f.1, 0177.0.0.1, 127.1.
NUMERIC = re.compile(r"0x[0-9a-f]*|[0-9]+")

# The only IPv6 block that is public; everything outside it (mapped and compatible IPv4, NAT64, link-local, unique
# local, multicast) is refused as a whole. Inside it these are not public, or carry an IPv4 address.
PUBLIC_IPV6 = ip_network("2000::/3")
REFUSED = tuple(
    ip_network(text)
    for text in (
        "2001::/23",  # Teredo and other protocols
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "3fff::/20",
        "192.0.0.0/24",  # protocols, and the metadata of some clouds
        "192.88.99.0/24",  # 6to4 relays
        "168.63.129.16/32",  # the machine below a virtual machine of Azure
    )
)


class Refused(Exception):
    """The URL or the address may not be called. `reason` is a sentence for whoever gave the URL."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Policy:
    """`networks` may be called although they are not public, and on any port; everything else only on `ports`."""

    networks: tuple[Network, ...] = ()
    ports: Collection[int] = (80, 443)

    def permits(self, address: Address) -> bool:
        """Whether the operator permits the address whatever it is."""
        return any(address in network for network in self.networks)


def policy() -> Policy:
    """What the operator has set: OUTBOUND_NETWORKS and OUTBOUND_PORTS."""
    return Policy(networks=settings.OUTBOUND_NETWORKS, ports=settings.OUTBOUND_PORTS)


def check_url(url: str, policy: Policy) -> None:
    """Returns when the text of `url` may be called as far as it tells. Asks no name server. Raises Refused."""
    parts = _split(url)
    host = parts.hostname or ""
    port = PORTS[parts.scheme] if parts.port is None else parts.port
    if address := _literal(parts):
        check_address(address, port, policy)
        return
    labels = host.split(".")
    if NUMERIC.fullmatch(labels[-1]) or not all(LABEL.fullmatch(label) for label in labels):
        raise Refused(_("The host is neither a name nor an address in its usual form."))
    if policy.networks:
        return  # the name may lead there; its address will be judged
    if len(labels) == 1:
        raise Refused(_("The host is not a public name."))
    _check_port(port, policy)


def check_address(address: str, port: int, policy: Policy) -> None:
    """Returns when the numeric `address` may be connected to on `port`. Raises Refused."""
    try:
        parsed = ip_address(address)
    except ValueError:
        raise Refused(_("The host is neither a name nor an address in its usual form.")) from None
    if policy.permits(parsed):
        return
    if not _public(parsed):
        raise Refused(_("The address is not public."))
    _check_port(port, policy)


def _split(url: str) -> SplitResult:
    if len(url) > LONGEST_URL or not VISIBLE.fullmatch(url) or "\\" in url:
        raise Refused(_("Not a URL in visible ASCII characters, or a very long one."))
    try:
        parts = urlsplit(url)
        _port = parts.port
    except ValueError:
        raise Refused(_("Not a URL.")) from None
    if parts.scheme not in PORTS:
        raise Refused(_("Must begin with https:// or http://."))
    if not parts.hostname or "@" in parts.netloc:
        raise Refused(_("Must name a host, and no user or password."))
    return parts


def _literal(parts: SplitResult) -> str:
    """The address, where the host is one in its usual form; else empty."""
    host = parts.hostname or ""
    if "[" in parts.netloc:
        return host
    try:
        return str(IPv4Address(host))
    except ValueError:
        return ""


def _check_port(port: int, policy: Policy) -> None:
    if port not in policy.ports:
        allowed = ", ".join(str(port) for port in sorted(policy.ports))
        raise Refused(
            _("Port %(port)s may not be called, only %(allowed)s.") % {"port": port, "allowed": allowed}
        )


def _public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and (address not in PUBLIC_IPV6 or address.scope_id):
        return False
    if address.is_multicast or address.is_reserved or not address.is_global:
        return False
    return not any(address in network for network in REFUSED)


# --- at the moment of connecting --------------------------------------------------------------------------


class GuardedResolver(AbstractResolver):
    """Gives the addresses of a name, or raises Refused when a single one of them may not be connected to."""

    def __init__(self, resolver: AbstractResolver, policy: Policy) -> None:
        self._resolver = resolver
        self._policy = policy

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for result in found:
            check_address(result["host"], port, self._policy)
        return found

    async def close(self) -> None:
        await self._resolver.close()


def connector(
    policy: Policy, *, resolver: AbstractResolver | None = None, **options: Any
) -> aiohttp.TCPConnector:
    """A connector of aiohttp that connects nowhere but where `policy` permits. `options` are aiohttp's own.

    Names are judged as they are resolved, and every address once more as its socket is made: also those that stand in
    the URL or come from a cache.
    """

    def guarded_socket(info: Any) -> socket.socket:
        family, kind, protocol, _canonical_name, (address, port, *_rest) = info
        check_address(address, port, policy)
        return socket.socket(family, kind, protocol)

    guarded = GuardedResolver(resolver or aiohttp.ThreadedResolver(), policy)
    return aiohttp.TCPConnector(resolver=guarded, socket_factory=guarded_socket, **options)
