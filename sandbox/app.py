"""Puts the emulators and the control API together into one ASGI application."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox.config import Config
from sandbox.control import PREFIX, Control
from sandbox.core import Core
from sandbox.evolution import api
from sandbox.evolution.control import InstanceControl, on_fault
from sandbox.evolution.server import Evolution
from sandbox.graph import api as graph_api
from sandbox.graph.control import GraphControl
from sandbox.graph.server import Graph


def create_app(config: Config) -> ASGIApp:
    """The whole sandbox; its durable state is opened here and closed with the application's lifespan."""
    core = Core(config)
    evolution, graph = Evolution(core), Graph(core)

    def on_reset() -> None:
        evolution.wipe()
        graph.wipe()

    control = Control(core, on_fault=lambda fault: on_fault(evolution, fault), on_reset=on_reset)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        evolution.start()
        graph.start()
        yield
        await core.close()
        await evolution.stop()
        await graph.stop()

    app = Starlette(
        routes=[
            *control.routes(),
            *InstanceControl(evolution).routes(),
            *GraphControl(graph).routes(),
            *graph_api.routes(graph),
            *api.routes(evolution),
        ],
        exception_handlers={404: _not_found, 405: _not_found, HTTPException: _refused},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return ControlKey(app, config.api_key)


class ControlKey:
    """Asks for the key on every control path, and only there."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIX) and not self._allowed(scope):
            refusal = JSONResponse({"error": "X-Sandbox-Key must be the API key"}, status_code=401)
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        given = Request(scope).headers.get("x-sandbox-key", "")
        return secrets.compare_digest(given.encode(), self._key.encode())


async def _not_found(request: Request, error: Exception) -> Response:
    if request.url.path.startswith(PREFIX):
        return await _refused(request, error)
    return await api.not_found(request, error)


async def _refused(_request: Request, error: Exception) -> Response:
    status, detail = (
        (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, str(error))
    )
    return JSONResponse({"error": detail}, status_code=status)
