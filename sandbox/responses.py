"""HTTP answers that never come: the cut connection and the endless wait."""

from __future__ import annotations

import socket
import struct

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class Hang(Response):
    """Answers nothing until the client goes away."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass


class Cut(Hang):
    """Resets the TCP connection instead of answering."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        transport = scope["state"]["transport"]
        # Lingering zero seconds turns the close into a RST: the client sees a reset, not a tidy end.
        linger = struct.pack("ii", 1, 0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        transport.abort()
        await super().__call__(scope, receive, send)
