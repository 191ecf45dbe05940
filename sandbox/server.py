"""Runs the sandbox in uvicorn: says when it listens, ends with 0 on SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sandbox.app import create_app
from sandbox.config import Config

BACKLOG = 1024


class ReachableTransport(H11Protocol):
    """Lets the application reach its TCP connection, as `scope["state"]["transport"]`, to cut it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.app_state = {**self.app_state, "transport": transport}
        # asyncio does it only for sockets whose protocol number is spelled out; without it each answer
        # waits 40 ms for the client's delayed ACK.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)


class AnnouncingServer(uvicorn.Server):
    """`startup` returns once the socket accepts connections, not before."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()


def serve(config: Config, announce: Callable[[str], None]) -> None:
    """Serve until told to stop; `announce` is given the URL once it answers."""
    listener = socket.create_server((config.host, config.port), backlog=BACKLOG)
    config = dataclasses.replace(config, port=listener.getsockname()[1])
    # uvicorn re-raises the signal that stopped it, for whoever handled it before: that is us.
    signal.signal(signal.SIGTERM, _exit)
    signal.signal(signal.SIGINT, _exit)
    AnnouncingServer(_settings(config), lambda: announce(config.url)).run(sockets=[listener])


def _settings(config: Config) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(config),
        http=ReachableTransport,
        loop="asyncio",
        ws="none",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
    )


def _exit(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)
