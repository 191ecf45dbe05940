"""One request to the Evolution emulator, read but not yet judged."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from sandbox.evolution.errors import envelope
from sandbox.evolution.instances import Instance

Answer = tuple[int, Any]


@dataclass
class Call:
    """`op` is group/action, `name` the instance named in the path. `saved`: Evolution will manage to store
    what it sends. `socket` is decided when first asked for."""

    op: str
    name: str
    key: str | None
    query: dict[str, str]
    body: dict[str, Any]
    saved: bool = True
    socket: str | None = None
    resolved: Instance | None = None
    asked_at: float = field(default_factory=time.time)

    @property
    def instance(self) -> Instance:
        """The instance acted on; known once the guards have passed."""
        assert self.resolved is not None
        return self.resolved

    @property
    def number(self) -> str:
        number = self.body.get("number")
        return number if isinstance(number, str) else ""


async def read_call(request: Request, op: str) -> Call:
    """Read a request. Raises EvolutionError for malformed JSON, before any guard looks at it."""
    body = await _body(request)
    name = request.path_params.get("name", "")
    if op == "instance/create":
        name = str(body.get("instanceName", ""))
    return Call(
        op=op,
        name=name,
        key=request.headers.get("apikey"),
        query=dict(request.query_params),
        body=body,
    )


async def _body(request: Request) -> dict[str, Any]:
    """Only application/json is parsed; anything else counts as an empty object."""
    raw = (await request.body()).decode(errors="replace")
    if not raw or "application/json" not in request.headers.get("content-type", ""):
        return {}
    body = parse(raw)
    return body if isinstance(body, dict) else {}


def parse(raw: str) -> Any:
    """A JSON body, or Evolution's 400 for a malformed one, worded as V8 words it."""
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        raise envelope(400, _complaint(raw, error), reason="Internal Server Error") from error


def _complaint(raw: str, error: json.JSONDecodeError) -> str:
    if error.pos >= len(raw):
        return "Unexpected end of JSON input"
    if error.msg.startswith("Expecting property name"):
        return f"Expected property name or '}}' in JSON at position {error.pos}"
    return f"Unexpected token '{raw[error.pos]}', \"{raw}\" is not valid JSON"
