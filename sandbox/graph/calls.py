"""One request to the Graph emulator, read but not yet judged."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

from starlette.requests import Request

from sandbox.graph.accounts import Account
from sandbox.graph.errors import GraphError

Answer = tuple[int, Any]


@dataclass(frozen=True)
class File:
    name: str
    mime_type: str
    data: bytes


@dataclass
class Call:
    """`op` names the operation for faults and the request log; `node` is the id in the path.

    `account` is the one that the token belongs to, known once the token was checked.
    """

    op: str
    node: str
    token: str
    query: dict[str, str]
    body: dict[str, Any]
    file: File | None = None
    url: str = ""
    bearer: Account | None = None
    asked_at: float = field(default_factory=time.time)

    @property
    def account(self) -> Account:
        assert self.bearer is not None
        return self.bearer

    @property
    def person(self) -> str:
        """Whom a message is for, as the sender wrote it."""
        recipient = self.body.get("recipient")
        if isinstance(recipient, dict):
            return str(recipient.get("id") or recipient.get("comment_id") or "")
        return str(self.body.get("to") or recipient or "")


async def read_call(request: Request, op: str) -> Call:
    """Read a request. Raises GraphError for a body that cannot be read."""
    raw, kind = await request.body(), request.headers.get("content-type", "")
    body, file = _body(raw, kind)
    query = dict(request.query_params)
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return Call(
        op=op,
        node=request.path_params.get("node", ""),
        token=token if scheme == "Bearer" else query.get("access_token", ""),
        query=query,
        body=body,
        file=file,
        url=str(request.base_url).rstrip("/"),
    )


def _body(raw: bytes, kind: str) -> tuple[dict[str, Any], File | None]:
    if kind.startswith("multipart/form-data"):
        return _form(raw, kind)
    if not raw or "json" not in kind:
        return {}, None
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise GraphError(100, "The request is not valid JSON.") from error
    return (body if isinstance(body, dict) else {}), None


def _form(raw: bytes, kind: str) -> tuple[dict[str, Any], File | None]:
    message = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + raw)
    fields: dict[str, Any] = {}
    file = None
    for part in message.iter_parts():
        data = part.get_payload(decode=True) or b""
        assert isinstance(data, bytes)
        name = part.get_param("name", header="content-disposition")
        if filename := part.get_filename():
            file = File(filename, part.get_content_type(), data)
        else:
            fields[str(name)] = data.decode(errors="replace")
    return fields, file
