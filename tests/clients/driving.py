"""AsyncPilot behind the face of Pilot, so that every test of a client serves both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

from pilot_client import AsyncPilot, Pilot


def driven(client: AsyncPilot, loop: asyncio.AbstractEventLoop) -> Pilot:
    """Calls of its methods run on `loop`; its lists are read to their end."""
    return cast(Pilot, _Driven(client, loop))


class _Driven:
    def __init__(self, client: AsyncPilot, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop

    def __getattr__(self, name: str) -> _Resource:
        return _Resource(getattr(self._client, name), self._loop)


class _Resource:
    def __init__(self, resource: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._resource = resource
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = getattr(self._resource, name)(*args, **kwargs)
            wanted = result if inspect.iscoroutine(result) else _all(result)
            return self._loop.run_until_complete(wanted)

        return call


async def _all(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]
