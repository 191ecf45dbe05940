"""The two clients: what is where in the API, and the connection to it."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic

import httpx

from pilot_client._exchange import Retrying
from pilot_client._operations import X
from pilot_client._resources.contacts import Contacts, Numbers
from pilot_client._resources.instances import Instances, MediaFiles, Queues
from pilot_client._resources.keys import Keys, UsageFigures
from pilot_client._resources.messages import Messages
from pilot_client._resources.templates import Templates
from pilot_client._resources.webhooks import Webhooks
from pilot_client._transports import AsyncTransport, Transport
from pilot_client._version import __version__

# Seconds. An answer takes milliseconds; a batch of 1,000 and a gateway that is asked take longer.
TIMEOUT = httpx.Timeout(connect=5, read=30, write=30, pool=5)


class Api(Generic[X]):
    """The resources of the API."""

    def __init__(self, transport: X) -> None:
        self._transport = transport
        self.messages = Messages(transport)
        self.templates = Templates(transport)
        self.contacts = Contacts(transport)
        self.numbers = Numbers(transport)
        self.instances = Instances(transport)
        self.queues = Queues(transport)
        self.media = MediaFiles(transport)
        self.keys = Keys(transport)
        self.usage = UsageFigures(transport)
        self.webhooks = Webhooks(transport)


class Pilot(Api[Transport]):
    """A client that waits for its answers. Threads may share one.

    `base_url` is where Pilot is, such as `https://pilot.example.com`; `timeout` in seconds or as httpx.Timeout.
    """

    def __init__(
        self,
        base_url: str,
        key: str,
        *,
        timeout: float | httpx.Timeout = TIMEOUT,
        retrying: Retrying | None = None,
    ) -> None:
        http = httpx.Client(**_settings(base_url, key, timeout))
        super().__init__(Transport(http, retrying or Retrying()))

    def close(self) -> None:
        """Closes its connections."""
        self._transport.http.close()

    def __enter__(self) -> Pilot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncPilot(Api[AsyncTransport]):
    """The same for programs on asyncio: await its methods, and use `async for` on its lists."""

    def __init__(
        self,
        base_url: str,
        key: str,
        *,
        timeout: float | httpx.Timeout = TIMEOUT,
        retrying: Retrying | None = None,
    ) -> None:
        http = httpx.AsyncClient(**_settings(base_url, key, timeout))
        super().__init__(AsyncTransport(http, retrying or Retrying()))

    async def close(self) -> None:
        """Closes its connections."""
        await self._transport.http.aclose()

    async def __aenter__(self) -> AsyncPilot:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _settings(base_url: str, key: str, timeout: float | httpx.Timeout) -> dict[str, Any]:
    headers = {"apikey": key, "User-Agent": f"pilot-client/{__version__}"}
    return {"base_url": f"{base_url.rstrip('/')}/api/", "headers": headers, "timeout": timeout}
