"""What people send to an emulated WhatsApp number, as its webhook tells it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sandbox.graph import media
from sandbox.graph.accounts import Account, bsuid
from sandbox.graph.hooks import News, stamp
from sandbox.graph.messages import wa_id, wamid
from sandbox.graph.server import Graph
from sandbox.graph.statuses import entry_of, metadata, person

FILES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "image": ("image/jpeg", {}),
    "video": ("video/mp4", {}),
    "audio": ("audio/ogg; codecs=opus", {"voice": True}),
    "document": ("application/pdf", {"filename": "doc.pdf"}),
    "sticker": ("image/webp", {"animated": False}),
}


def receive(graph: Graph, account: Account, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A message arrives and opens the window. `spec` has `from`, and `text` or any message node by its `type`."""
    contact = graph.contact(account, str(spec["from"]))
    number, at = wa_id(contact), float(spec.get("at", graph.clock.now()))
    kind = str(spec.get("type", "text"))
    message = {
        **_sender(account, number),
        "id": spec.get("id") or wamid(),
        "timestamp": stamp(at),
        "type": kind,
        **_node(graph, account, kind, spec),
        **spec.get("extra", {}),
    }
    graph.mailbox.heard(account.id, number, at)
    graph.objects.put("inbound", message["id"], {"read": False, "at": time.time()})
    copies = [message] * int(spec.get("copies", 1))
    name = contact.name or "Ana"
    value = {**metadata(account), **person(account, number, name), "messages": copies}
    graph.hooks.emit(News(account, entry_of(account, "messages", value), "messages", number))
    return {"id": message["id"], "wa_id": number}


def _sender(account: Account, number: str) -> dict[str, Any]:
    sender = {} if account.bsuid == "only" else {"from": number}
    if account.bsuid != "none":
        sender["from_user_id"] = bsuid(account.business_id, number)
    return sender


def _node(graph: Graph, account: Account, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    if kind in spec:
        return {kind: spec[kind]} if kind != "text" else {"text": {"body": spec["text"]}}
    if kind not in FILES:
        return {}
    mime, extra = FILES[kind]
    data = str(spec.get("data", "bytes")).encode()
    id_ = media.store(graph, account, mime, data, life=media.RECEIVED_LIFE)
    row = media.find(graph, account, id_)
    return {kind: {"id": id_, "mime_type": mime, "sha256": row.fields["sha256"], **extra}}
