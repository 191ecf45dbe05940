"""A name server on this machine that may change its mind between two questions, and a resolver that asks it."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable

from aiohttp.abc import AbstractResolver, ResolveResult


class NameServer:
    """Answers every question for an A record with the next of `addresses`; the last one for ever. TTL 0."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = list(addresses)
        self.asked = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = self._socket.getsockname()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                question, asker = self._socket.recvfrom(512)
            except OSError:
                return
            address = self._addresses[min(self.asked, len(self._addresses) - 1)]
            self.asked += 1
            self._socket.sendto(_answer(question, address), asker)


class AsksServer(AbstractResolver):
    """The resolver of a machine whose name server is this one."""

    def __init__(self, server: NameServer) -> None:
        self._server = server

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        address = await asyncio.to_thread(_ask, self._server.address, host)
        return [result(host, address, port)]

    async def close(self) -> None:
        pass


class Says(AbstractResolver):
    """A resolver that gives what `addresses` gives for a name."""

    def __init__(self, addresses: Callable[[str], list[str]]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [result(host, address, port) for address in self._addresses(host)]

    async def close(self) -> None:
        pass


def result(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(
        hostname=host, host=address, port=port, family=family, proto=0, flags=socket.AI_NUMERICHOST
    )


def _ask(server: tuple[str, int], host: str) -> str:
    name = b"".join(bytes([len(label)]) + label.encode() for label in host.split(".")) + b"\0"
    question = struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + name + struct.pack("!2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(5)
        asking.sendto(question, server)
        return socket.inet_ntoa(asking.recv(512)[-4:])


def _answer(question: bytes, address: str) -> bytes:
    head = question[:2] + struct.pack("!5H", 0x8180, 1, 1, 0, 0)
    record = struct.pack("!3HIH", 0xC00C, 1, 1, 0, 4) + socket.inet_aton(address)
    return head + question[12:] + record
