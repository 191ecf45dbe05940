"""What performs a flow's steps: one that waits, and one that lets other tasks run meanwhile."""

from __future__ import annotations

import asyncio
import time
from typing import Any, TypeVar

import httpx

from pilot_client._exchange import NETWORK, Flow, Outcome, Pause, Request, Retrying, Step

T = TypeVar("T")


class Transport:
    """Performs flows one step after the other."""

    def __init__(self, http: httpx.Client, retrying: Retrying) -> None:
        self.http = http
        self.retrying = retrying

    def run(self, flow: Flow[T]) -> T:
        """What the flow comes to."""
        outcome: Outcome = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as done:
                result: T = done.value
                return result
            outcome = self._perform(step)

    def _perform(self, step: Step) -> Outcome:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            return self.http.request(**arguments(step))
        except NETWORK as error:
            return error


class AsyncTransport:
    """The same on an event loop of asyncio."""

    def __init__(self, http: httpx.AsyncClient, retrying: Retrying) -> None:
        self.http = http
        self.retrying = retrying

    async def run(self, flow: Flow[T]) -> T:
        """What the flow comes to."""
        outcome: Outcome = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as done:
                result: T = done.value
                return result
            outcome = await self._perform(step)

    async def _perform(self, step: Step) -> Outcome:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            return await self.http.request(**arguments(step))
        except NETWORK as error:
            return error


def arguments(request: Request) -> dict[str, Any]:
    """What httpx's request() is called with."""
    wanted: dict[str, Any] = {"method": request.method, "url": request.path, "headers": request.headers}
    wanted["params"] = request.params or None
    return wanted | ({"content": request.content} if request.json is None else {"json": request.json})
