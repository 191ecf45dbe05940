"""Instagram messaging: direct messages, replies to comments, and what its webhooks tell."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from sandbox.faults import Target
from sandbox.graph.accounts import Account
from sandbox.graph.calls import Answer, Call
from sandbox.graph.errors import GraphError, unknown_object
from sandbox.graph.hooks import News
from sandbox.graph.server import Graph

OP, REPLY_OP = "message/instagram", "message/comment"
TEXT_BYTES = 1000
MOST_QUICK_REPLIES = 13
WINDOW_SECONDS, HUMAN_SECONDS, COMMENT_SECONDS = 24 * 3600, 7 * 86_400, 7 * 86_400
OUTSIDE_WINDOW, REPLY_USED, NO_SUCH_USER = 2534022, 2534025, 2534014


def new_mid() -> str:
    return "aWdf" + secrets.token_urlsafe(60)


async def send(graph: Graph, call: Call) -> Answer:
    """POST /me/messages: a direct message, a private reply to a comment, or a sender action."""
    if action := call.body.get("sender_action"):
        graph.objects.put("action", call.person, {"action": action})
        return 200, {"recipient_id": call.person}
    _check(call.body.get("message"))
    comment_id = (call.body.get("recipient") or {}).get("comment_id")
    person = _commenter(graph, call.account, str(comment_id)) if comment_id else call.person
    if not comment_id:
        _check_window(graph, call, person)
    mid = _accept(graph, call, person, kind="private_reply" if comment_id else "direct")
    if comment_id:
        _use_up(graph, str(comment_id))
    await _announce(graph, call, person, mid)
    return 200, {"recipient_id": person, "message_id": mid}


async def reply_publicly(graph: Graph, call: Call) -> Answer:
    """POST /{comment_id}/replies: a comment below a comment, which comes back as a webhook too."""
    row = graph.objects.get("comment", call.node)
    if row is None or row.fields["account"] != call.account.id:
        raise unknown_object(call.node)
    text = call.query.get("message") or call.body.get("message")
    if not text:
        raise GraphError(100, "The parameter message is required.")
    id_ = str(secrets.randbelow(10**17))
    call.body = {"comment_id": call.node, "message": text}
    _record(graph, call, call.node, id_, kind="comment_reply", text=str(text))
    _tell_comment(graph, call.account, id_, str(text), author=call.account.id, parent=call.node)
    return 200, {"id": id_}


def _check(message: Any) -> None:
    if not isinstance(message, dict) or bool(message.get("text")) == bool(message.get("attachment")):
        raise GraphError(100, "The parameter message is required: a text or an attachment")
    if len(str(message.get("text", "")).encode()) > TEXT_BYTES:
        raise GraphError(
            100, "Length of param message[text] must be less than or equal to 1000", subcode=2018109
        )
    if len(message.get("quick_replies", [])) > MOST_QUICK_REPLIES:
        raise GraphError(100, "Too many quick replies")


def _check_window(graph: Graph, call: Call, person: str) -> None:
    heard = graph.mailbox.last_heard(call.account.id, person)
    if heard is None and graph.objects.get("igsid", person) is None:
        raise GraphError(100, "No matching user found", subcode=NO_SUCH_USER)
    human = call.body.get("tag") == "HUMAN_AGENT"
    allowed = HUMAN_SECONDS if human else WINDOW_SECONDS
    if heard is None or graph.clock.now() >= heard + allowed:
        raise GraphError(
            10, "This message is sent outside of allowed window.", subcode=OUTSIDE_WINDOW, status=400
        )


def _commenter(graph: Graph, account: Account, comment_id: str) -> str:
    row = graph.objects.get("comment", comment_id)
    if row is None or row.fields["account"] != account.id:
        raise unknown_object(comment_id)
    if row.fields["used"]:
        raise GraphError(100, "Activity already replied to", subcode=REPLY_USED)
    if graph.clock.now() >= row.fields["at"] + COMMENT_SECONDS:
        raise GraphError(10, "The comment is too old.", subcode=OUTSIDE_WINDOW, status=400)
    return str(row.fields["author"])


def _use_up(graph: Graph, comment_id: str) -> None:
    row = graph.objects.get("comment", comment_id)
    assert row is not None
    graph.objects.put("comment", comment_id, {**row.fields, "used": True})


def _accept(graph: Graph, call: Call, person: str, *, kind: str) -> str:
    mid = new_mid()
    message = call.body["message"]
    _record(graph, call, person, mid, kind=kind, text=str(message.get("text", "")))
    return mid


def _record(graph: Graph, call: Call, person: str, id_: str, *, kind: str, text: str) -> None:
    graph.core.ledger.append(
        instance=call.account.id,
        number=call.person or person,
        remote_jid=person,
        key_id=id_,
        kind=kind,
        text=text,
        body=dict(call.body),
        asked_at=call.asked_at,
    )


async def _announce(graph: Graph, call: Call, person: str, mid: str) -> None:
    """The echo always comes, sometimes before the answer; then, when the person looks, that it was seen."""
    echo = {"mid": mid, "is_echo": True, **call.body["message"]}
    told = partial(graph.core.ledger.tell, key_id=mid, status="SENT")
    task = _tell(graph, call.account, call.account.id, person, {"message": echo}, "echo", told)
    target = Target(instance=call.account.id, number=person, op=OP)
    if task and graph.core.faults.take("webhooks_before_answer", target):
        await task
    if not graph.core.faults.take("stay_pending", target):
        graph.core.background.spawn(_see(graph, call.account, person, mid))


async def _see(graph: Graph, account: Account, person: str, mid: str) -> None:
    after = graph.core.config.receipts_after
    if len(after) < 3:
        return
    await asyncio.sleep(after[2])
    if graph.objects.get("igsid", person) is None:
        return  # a reset forgot it
    graph.core.ledger.advance(key_id=mid, status="READ")
    told = partial(graph.core.ledger.tell, key_id=mid, status="READ")
    _tell(graph, account, person, account.id, {"read": {"mid": mid}}, "seen", told)


def receive(graph: Graph, account: Account, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A direct message arrives: `from`, and `text` or a `message` of any shape (or a `reaction`, `postback` …)."""
    person, at = str(spec["from"]), float(spec.get("at", graph.clock.now()))
    mid = str(spec.get("id") or new_mid())
    graph.objects.put("igsid", person, {})
    graph.mailbox.heard(account.id, person, at)
    body = spec.get("body") or {"message": {"mid": mid, **spec.get("message", {"text": spec.get("text")})}}
    item = {**_item(person, account.id, at), **body}
    graph.hooks.emit(News(account, _entry(account, {"messaging": [item]}), "messages", person))
    return {"id": mid}


def comment(graph: Graph, account: Account, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Somebody comments: `from`, `text`, and perhaps `parent` and `at`."""
    id_ = str(spec.get("id") or secrets.randbelow(10**17))
    author, at = str(spec["from"]), float(spec.get("at", graph.clock.now()))
    graph.objects.put("igsid", author, {})
    fields = {"account": account.id, "author": author, "at": at, "used": False}
    graph.objects.put("comment", id_, fields)
    _tell_comment(graph, account, id_, str(spec.get("text", "")), author=author, parent=spec.get("parent"))
    return {"id": id_}


def _tell_comment(
    graph: Graph, account: Account, id_: str, text: str, *, author: str, parent: str | None
) -> None:
    value: dict[str, Any] = {
        "id": id_,
        "text": text,
        "from": {"id": author, "username": account.username if author == account.id else "ana"},
        "media": {"id": "M1", "media_product_type": "FEED"},
    }
    if parent:
        value["parent_id"] = parent
    change = {"field": "comments", "value": value}
    shape = {"changes": [change]} if account.field_shape == "changes" else change
    entry = {"id": account.id, "time": int(time.time()), **shape}
    graph.hooks.emit(News(account, entry, "comments", author))


def _tell(
    graph: Graph, account: Account, sender: str, recipient: str, body: dict[str, Any], event: str, told: Any
) -> Any:
    item = {**_item(sender, recipient, graph.clock.now()), **body}
    return graph.hooks.emit(News(account, _entry(account, {"messaging": [item]}), event, recipient, told))


def _item(sender: str, recipient: str, at: float) -> dict[str, Any]:
    return {"sender": {"id": sender}, "recipient": {"id": recipient}, "timestamp": int(at * 1000)}


def _entry(account: Account, content: dict[str, Any]) -> dict[str, Any]:
    return {"id": account.id, "time": int(time.time() * 1000), **content}
