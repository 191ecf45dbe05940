"""Control of the emulated WhatsApp side: pairing, closes, forced states, inbound messages, raw events."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandbox.evolution.connection import TERMINAL
from sandbox.evolution.errors import SHAPES
from sandbox.evolution.hooks import wipe_webhook
from sandbox.evolution.inbound import receive
from sandbox.evolution.instances import Instance
from sandbox.evolution.server import Evolution
from sandbox.faults import Fault, Target

SOCKETS = {"open": "open", "close": "closed", "connecting": "connecting"}


class InstanceControl:
    def __init__(self, evolution: Evolution) -> None:
        self._evolution = evolution

    def routes(self) -> list[Route]:
        actions = {
            "pair": self.pair,
            "disconnect": self.disconnect,
            "state": self.force_state,
            "inbound": self.inbound,
            "webhook": self.fire,
        }
        return [
            Route(f"/_sandbox/instances/{{name}}/{action}", endpoint, methods=["POST"])
            for action, endpoint in actions.items()
        ]

    async def pair(self, request: Request) -> Response:
        instance, body = await self._read(request)
        owner, profile = body.get("owner"), body.get("profile_name")
        self._evolution.connections.open(instance, owner=owner, profile_name=profile)
        return JSONResponse(instance.state_body())

    async def disconnect(self, request: Request) -> Response:
        instance, body = await self._read(request)
        reason = int(body.get("reason", 401))
        terminal = bool(body.get("terminal", reason in TERMINAL))
        self._evolution.connections.drop(instance, reason=reason, terminal=terminal)
        return JSONResponse(instance.state_body())

    async def force_state(self, request: Request) -> Response:
        instance, body = await self._read(request)
        state = body["state"]
        socket = body.get("socket", SOCKETS[state])
        self._evolution.connections.force(instance, state=state, socket=socket)
        return JSONResponse(instance.state_body())

    async def inbound(self, request: Request) -> Response:
        instance, body = await self._read(request)
        return JSONResponse(receive(self._evolution, instance, body), status_code=201)

    async def fire(self, request: Request) -> Response:
        """Any event with any data, to the instance's webhook."""
        instance, body = await self._read(request)
        delivery = self._evolution.events.emit(instance, body["event"], body.get("data"))
        return JSONResponse({"subscribed": delivery is not None})

    async def _read(self, request: Request) -> tuple[Instance, dict[str, Any]]:
        instance = self._evolution.instances.get(request.path_params["name"])
        if instance is None:
            raise HTTPException(404, "no such instance")
        return instance, (await request.json()) if await request.body() else {}


def on_fault(evolution: Evolution, fault: Fault) -> None:
    """Check what only this emulator knows of a fault, and do at once what some do by themselves, to the
    instances that exist. Raises ValueError for an unknown error shape."""
    if fault.kind == "error" and fault.params["shape"] not in SHAPES:
        raise ValueError(f"unknown shape {fault.params['shape']!r}; known: {', '.join(SHAPES)}")
    if fault.kind == "webhook_config_wiped":
        for instance in _struck(evolution, fault):
            wipe_webhook(evolution, instance)
    if fault.kind == "connecting_storm":
        for instance in _struck(evolution, fault):
            evolution.connections.storm(instance, fault)


def _struck(evolution: Evolution, fault: Fault) -> list[Instance]:
    return [i for i in evolution.instances.all() if fault.matches(Target(instance=i.name)) and fault.strike()]
