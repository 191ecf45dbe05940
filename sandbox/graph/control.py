"""Control of the emulated Graph API: accounts, people's messages, templates, statuses, the clock."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandbox.graph import hooks, inbound, instagram, templates
from sandbox.graph.accounts import INSTAGRAM, Account
from sandbox.graph.errors import status_error
from sandbox.graph.hooks import News
from sandbox.graph.server import Graph
from sandbox.graph.statuses import entry_of

PREFIX = "/_sandbox/graph"


class GraphControl:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def routes(self) -> list[Route]:
        actions = {
            "inbound": self.inbound,
            "comment": self.comment,
            "status": self.status,
            "change": self.change,
            "webhook": self.fire,
            "verify": self.verify,
            "template": self.template,
        }
        named = [
            Route(f"{PREFIX}/accounts/{{id}}/{action}", endpoint, methods=["POST"])
            for action, endpoint in actions.items()
        ]
        return [
            *named,
            Route(f"{PREFIX}/accounts/{{id}}", self.put_account, methods=["POST"]),
            Route(f"{PREFIX}/clock", self.advance, methods=["POST"]),
        ]

    async def put_account(self, request: Request) -> Response:
        """Make or change an account (sandbox/graph/accounts.py has its fields)."""
        try:
            account = self._graph.accounts.put(request.path_params["id"], await request.json())
        except TypeError as error:
            raise HTTPException(400, str(error)) from error
        return JSONResponse(asdict(account))

    async def advance(self, request: Request) -> Response:
        """Move the emulator's clock on: windows close, ids expire, buckets fill."""
        self._graph.clock.advance(float((await request.json())["seconds"]))
        return JSONResponse({"now": self._graph.clock.now()})

    async def inbound(self, request: Request) -> Response:
        account, body = await self._read(request)
        receive = instagram.receive if account.kind == INSTAGRAM else inbound.receive
        return JSONResponse(receive(self._graph, account, body), status_code=201)

    async def comment(self, request: Request) -> Response:
        account, body = await self._read(request)
        return JSONResponse(instagram.comment(self._graph, account, body), status_code=201)

    async def status(self, request: Request) -> Response:
        """Report `status` of the message `id` now, whatever was planned; `code` for a failed one."""
        _account, body = await self._read(request)
        sent = self._graph.mailbox.get(body["id"])
        if sent is None:
            raise HTTPException(404, "no such message")
        if "code" in body:
            sent.failure = status_error(int(body["code"]))
        self._graph.statuses.report(sent, body["status"])
        return Response(status_code=204)

    async def change(self, request: Request) -> Response:
        """Fire a change of any `field` with any `value`."""
        account, body = await self._read(request)
        entry = entry_of(account, body["field"], body["value"])
        self._graph.hooks.emit(News(account, entry, body["field"]))
        return Response(status_code=204)

    async def fire(self, request: Request) -> Response:
        """Post any payload, signed."""
        account, body = await self._read(request)
        self._graph.hooks.post_raw(account, body)
        return Response(status_code=204)

    async def verify(self, request: Request) -> Response:
        """The handshake with the webhook's GET."""
        account, _body = await self._read(request)
        return JSONResponse(await hooks.handshake(account))

    async def template(self, request: Request) -> Response:
        account, body = await self._read(request)
        return JSONResponse(templates.put(self._graph, account.business_id, body))

    async def _read(self, request: Request) -> tuple[Account, dict[str, Any]]:
        account = self._graph.accounts.get(request.path_params["id"])
        if account is None:
            raise HTTPException(404, "no such account")
        return account, (await request.json()) if await request.body() else {}
