"""Media: upload, the two-hop download with its short-lived address, and ids that expire."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from starlette.responses import Response

from sandbox.graph.accounts import Account, Row
from sandbox.graph.calls import Answer, Call
from sandbox.graph.errors import GraphError, unknown_object
from sandbox.graph.server import Graph

UPLOADED_LIFE, RECEIVED_LIFE = 30 * 86_400, 7 * 86_400
ADDRESS_LIFE = 300
MB = 1024 * 1024
LIMITS = {
    "image/jpeg": 5 * MB,
    "image/png": 5 * MB,
    "video/mp4": 16 * MB,
    "video/3gpp": 16 * MB,
    "audio/aac": 16 * MB,
    "audio/amr": 16 * MB,
    "audio/mpeg": 16 * MB,
    "audio/mp4": 16 * MB,
    "audio/ogg": 16 * MB,
    "image/webp": 500 * 1024,
}
DOCUMENT_LIMIT = 100 * MB
REFUSED_TYPES = ("audio/opus", "application/octet-stream")


def new_id() -> str:
    return str(secrets.randbelow(9 * 10**14) + 10**14)


async def upload(graph: Graph, call: Call) -> Answer:
    if call.file is None or call.body.get("messaging_product") != "whatsapp":
        raise GraphError(100, "(#100) Param file must be a file, messaging_product is required")
    mime = str(call.body.get("type") or call.file.mime_type).partition(";")[0].strip()
    if mime in REFUSED_TYPES:
        raise GraphError(100, f"Param file must be a file with one of the following types, got {mime}")
    if len(call.file.data) > LIMITS.get(mime, DOCUMENT_LIMIT):
        raise GraphError(131053, "The file is too large.")
    return 200, {"id": store(graph, call.account, mime, call.file.data, life=UPLOADED_LIFE)}


def store(graph: Graph, account: Account, mime: str, data: bytes, *, life: int) -> str:
    id_ = new_id()
    fields = {
        "account": account.id,
        "mime_type": mime,
        "sha256": hashlib.sha256(data).hexdigest(),
        "until": graph.clock.now() + life,
    }
    graph.objects.put("media", id_, fields, data)
    return id_


def find(graph: Graph, account: Account, id_: str) -> Row:
    """A file that `account` uploaded or received, while its id lives."""
    row = graph.objects.get("media", id_)
    if row is None or row.fields["account"] != account.id or graph.clock.now() > row.fields["until"]:
        raise unknown_object(id_)
    return row


def describe(graph: Graph, call: Call, row: Row) -> dict[str, Any]:
    """GET /{media_id}: an address that is good for five minutes."""
    address = secrets.token_urlsafe(24)
    graph.objects.put("address", address, {"media": row.id, "until": graph.clock.now() + ADDRESS_LIFE})
    return {
        "messaging_product": "whatsapp",
        "url": f"{call.url}/_media/{address}",
        "mime_type": row.fields["mime_type"],
        "sha256": row.fields["sha256"],
        "file_size": str(len(row.data)),
        "id": row.id,
    }


def download(graph: Graph, call: Call) -> Response:
    """The second hop; it needs the token again."""
    address = graph.objects.get("address", call.node)
    if address is None or graph.clock.now() > address.fields["until"]:
        return Response("Not found", status_code=404)
    row = graph.objects.get("media", address.fields["media"])
    bearer = graph.accounts.by_token(call.token)
    if row is None or bearer is None or bearer.id != row.fields["account"]:
        return Response("Unauthorized", status_code=401)
    return Response(row.data, media_type=row.fields["mime_type"])
