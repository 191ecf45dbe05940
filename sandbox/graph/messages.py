"""POST /{phone_number_id}/messages: from a body to a message that is in the ledger, and the statuses after it."""

from __future__ import annotations

import secrets
from typing import Any

from sandbox.faults import Target
from sandbox.graph import bodies, media, templates
from sandbox.graph.accounts import Account
from sandbox.graph.calls import Answer, Call
from sandbox.graph.errors import GraphError
from sandbox.graph.mailbox import Sent
from sandbox.graph.server import Graph
from sandbox.numbers import Contact

WINDOW_SECONDS = 24 * 3600
OP = "message/graph"


def wamid() -> str:
    return "wamid." + secrets.token_urlsafe(40)


async def send(graph: Graph, call: Call) -> Answer:
    """Take a message over, or mark one of a person as read."""
    if call.body.get("messaging_product") != "whatsapp":
        raise GraphError(100, "The parameter messaging_product is required.")
    if call.body.get("status") == "read":
        return _mark_read(graph, call)
    bodies.check(call.body)
    account, contact = call.account, graph.contact(call.account, call.person)
    graph.limits.take(account=account.id, per_second=account.messages_per_second, person=wa_id(contact))
    category = _check_references(graph, call)
    failure = _refusal(graph, account, contact, free_form=category == "service")
    sent = _accept(graph, call, contact, category, failure)
    await _announce(graph, call, sent)
    return 200, _answer(call, account, contact, sent)


def wa_id(contact: Contact) -> str:
    return contact.jid.partition("@")[0]


def _mark_read(graph: Graph, call: Call) -> Answer:
    id_ = str(call.body.get("message_id", ""))
    if graph.objects.get("inbound", id_) is None:
        raise GraphError(131009, f"Message with id {id_} not found")
    graph.objects.put("inbound", id_, {"read": True, "typing": "typing_indicator" in call.body})
    return 200, {"success": True}


def _check_references(graph: Graph, call: Call) -> str:
    """The template and the media that a message names must exist. Returns its pricing category."""
    kind = bodies.kind_of(call.body)
    part = call.body[kind]
    if kind in bodies.MEDIA and part.get("id"):
        media.find(graph, call.account, str(part["id"]))
    if kind == "template":
        return templates.match(graph, call.account, part)
    return "service"


def _refusal(graph: Graph, account: Account, contact: Contact, *, free_form: bool) -> int | None:
    """The code with which the message will fail after it was accepted; None when it will arrive.

    Raises GraphError 131047 for an account that says so at once.
    """
    if not contact.exists:
        return 131026
    if not free_form or account.window == "off":
        return None
    heard = graph.mailbox.last_heard(account.id, wa_id(contact))
    if heard is not None and graph.clock.now() < heard + WINDOW_SECONDS:
        return None
    if account.window == "sync":
        raise GraphError(131047)
    return 131047


def _accept(graph: Graph, call: Call, contact: Contact, category: str, failure: int | None) -> Sent:
    """WhatsApp took the message. The ledger has it before anybody is told."""
    callback = str(call.body.get("biz_opaque_callback_data", ""))
    sent = Sent(id=wamid(), account=call.account.id, person=wa_id(contact), callback=callback)
    sent.category = category
    graph.statuses.plan(sent, failure=failure)
    with graph.core.database.transaction():
        graph.core.ledger.append(
            instance=call.account.id,
            number=call.person,
            remote_jid=contact.jid,
            key_id=sent.id,
            kind=bodies.kind_of(call.body),
            text=bodies.text_of(call.body),
            body=dict(call.body),
            asked_at=call.asked_at,
        )
        graph.mailbox.store(sent)
    return sent


async def _announce(graph: Graph, call: Call, sent: Sent) -> None:
    target = Target(instance=call.account.id, number=call.person, op=OP)
    if sent.due and graph.core.faults.take("webhooks_before_answer", target):
        await graph.statuses.play_overtaking(sent)
    else:
        graph.statuses.play(sent)


def _answer(call: Call, account: Account, contact: Contact, sent: Sent) -> dict[str, Any]:
    known = {"input": call.person}
    known |= {"user_id": call.person} if call.body.get("recipient") else {"wa_id": wa_id(contact)}
    message = {"id": sent.id}
    if account.message_status:
        message["message_status"] = account.message_status
    return {"messaging_product": "whatsapp", "contacts": [known], "messages": [message]}
