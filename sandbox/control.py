"""The control API every emulator shares: ledger, faults, numbers, the request log and reset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandbox.core import Core
from sandbox.faults import Fault

PREFIX = "/_sandbox"
LEDGER_PAGE = 1000


class Control:
    """`on_fault` sees each fault before it is armed and may refuse it with a ValueError; `on_reset` is told of
    a reset once the shared state is gone."""

    def __init__(
        self, core: Core, *, on_fault: Callable[[Fault], None], on_reset: Callable[[], None]
    ) -> None:
        self._core = core
        self._on_fault = on_fault
        self._on_reset = on_reset

    def routes(self) -> list[Route]:
        return [
            Route(f"{PREFIX}/ledger", self.ledger),
            Route(f"{PREFIX}/ledger/count", self.ledger_count),
            Route(f"{PREFIX}/told", self.told),
            Route(f"{PREFIX}/requests", self.requests),
            Route(f"{PREFIX}/faults", self.list_faults),
            Route(f"{PREFIX}/faults", self.arm, methods=["POST"]),
            Route(f"{PREFIX}/faults", self.disarm, methods=["DELETE"]),
            Route(f"{PREFIX}/faults/{{id:int}}", self.disarm, methods=["DELETE"]),
            Route(f"{PREFIX}/numbers/{{number}}", self.put_number, methods=["POST"]),
            Route(f"{PREFIX}/reset", self.reset, methods=["POST"]),
        ]

    async def ledger(self, request: Request) -> Response:
        query = request.query_params
        after = int(query.get("after", 0))
        entries = self._core.ledger.read(
            after=after, limit=int(query.get("limit", LEDGER_PAGE)), instance=query.get("instance")
        )
        return JSONResponse({"entries": entries, "next": entries[-1]["seq"] if entries else after})

    async def ledger_count(self, request: Request) -> Response:
        return JSONResponse({"count": self._core.ledger.count(instance=request.query_params.get("instance"))})

    async def told(self, request: Request) -> Response:
        query = request.query_params
        after = int(query.get("after", 0))
        entries = self._core.ledger.told(after=after, limit=int(query.get("limit", LEDGER_PAGE)))
        return JSONResponse({"entries": entries, "next": entries[-1]["seq"] if entries else after})

    async def requests(self, request: Request) -> Response:
        query = request.query_params
        after = int(query.get("after", 0))
        entries = self._core.traffic.read(after=after, op=query.get("op"))
        return JSONResponse({"entries": entries, "next": entries[-1]["seq"] if entries else after})

    async def list_faults(self, _request: Request) -> Response:
        return JSONResponse(self._core.faults.list())

    async def arm(self, request: Request) -> Response:
        try:
            fault = self._core.faults.parse(await request.json())
            self._on_fault(fault)
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        self._core.faults.arm(fault)
        return JSONResponse({"id": fault.id}, status_code=201)

    async def disarm(self, request: Request) -> Response:
        self._core.faults.clear(request.path_params.get("id"))
        return Response(status_code=204)

    async def put_number(self, request: Request) -> Response:
        try:
            contact = self._core.directory.put(request.path_params["number"], await request.json())
        except TypeError as error:
            raise HTTPException(400, str(error)) from error
        return JSONResponse(asdict(contact))

    async def reset(self, _request: Request) -> Response:
        self._core.wipe()
        self._on_reset()
        return Response(status_code=204)
