"""The message/* endpoints: from a validated body to a delivered, stored and announced message."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx

from sandbox.evolution import bodies
from sandbox.evolution.bodies import Content
from sandbox.evolution.calls import Answer, Call
from sandbox.evolution.errors import bad_request, envelope, undefined, unhandled
from sandbox.evolution.formats import key_id, random_uuid, wamid
from sandbox.evolution.instances import BAILEYS, BUSINESS
from sandbox.evolution.mailbox import Message
from sandbox.evolution.reach import look_up, socket_of
from sandbox.evolution.server import Evolution
from sandbox.faults import Target
from sandbox.numbers import Contact, is_group, to_jid

DOWNLOAD_TIMEOUT = 10.0
# Fields that say how to send, not what: they do not make two messages different.
ENVELOPE_FIELDS = frozenset(
    {"number", "delay", "quoted", "linkPreview", "messageId", "mentionsEveryOne", "mentioned"}
)

# What a send says when the socket is not open, after the number itself was found.
SEND_FAILURES = {
    "none": f"TypeError: {undefined('sendMessage')}",
    "connecting": f"TypeError: {undefined('id')}",
    "closed": "Error: Connection Closed",
}
UPLOAD_FAILURES = {
    "none": f"TypeError: {undefined('waUploadToServer')}",
    "connecting": "Error: Connection Closed",
    "closed": "Error: Connection Closed",
}


async def send_text(evolution: Evolution, call: Call) -> Answer:
    return await _send(evolution, call, bodies.text_content(call.body))


async def send_buttons(evolution: Evolution, call: Call) -> Answer:
    if "buttons" not in call.body:
        raise unhandled(undefined("length"))
    return await _send(evolution, call, bodies.buttons_content(call.body))


async def send_template(evolution: Evolution, call: Call) -> Answer:
    if call.instance.integration != BUSINESS:
        raise unhandled("Method not available in the Baileys service")
    return await _send(evolution, call, bodies.template_content(call.body))


async def send_media(evolution: Evolution, call: Call) -> Answer:
    """The media is fetched and uploaded before the number is looked up, as in the real server."""
    media = call.body.get("media", "")
    data = await _download(media) if bodies.is_url(media) else bodies.decode_media(call.body)
    socket = socket_of(evolution, call)
    if call.instance.integration == BAILEYS and socket != "open":
        raise envelope(500, [UPLOAD_FAILURES[socket]])
    return await _send(evolution, call, bodies.media_content(call.body, data))


async def _download(url: str) -> bytes:
    """The server fetches the URL itself; the failure is a 500 with a list."""
    try:
        async with httpx.AsyncClient(timeout=DOWNLOAD_TIMEOUT, follow_redirects=True) as client:
            response = await client.get(url)
    except httpx.ConnectError as error:
        raise envelope(500, [f"Error: connect ECONNREFUSED {_address(url)}"]) from error
    except httpx.HTTPError as error:
        raise envelope(500, [f"Error: {error}"]) from error
    if response.is_error:
        raise envelope(500, [f"AxiosError: Request failed with status code {response.status_code}"])
    return response.content


def _address(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


async def _send(evolution: Evolution, call: Call, content: Content) -> Answer:
    if call.instance.integration != BAILEYS:
        jid = to_jid(call.body["number"])
        return await _accept(evolution, call, content, _service_record(call, content, jid), Contact(jid=jid))
    socket = socket_of(evolution, call)
    contact = look_up(evolution, call.body["number"], socket)
    await asyncio.sleep(call.body.get("delay", 0) / 1000)
    socket = call.instance.session.socket if socket == "open" else socket
    if socket != "open":
        raise bad_request(SEND_FAILURES[socket])
    return await _accept(evolution, call, content, _baileys_record(call, content, contact), contact)


def _baileys_record(call: Call, content: Content, contact: Contact) -> dict[str, Any]:
    now, jid = int(time.time()), contact.jid
    key = {"remoteJid": jid, "fromMe": True, "id": key_id()}
    buttons = content.kind == "buttons"
    return {
        "key": {**key, "participant": jid} if buttons else key,
        "pushName": "Você",
        "status": "PENDING",
        "message": content.message,
        **({} if buttons else {"contextInfo": _context(call, contact, now)}),
        "messageType": content.message_type,
        "messageTimestamp": now,
        "instanceId": call.instance.id,
        "source": "web",
    }


def _context(call: Call, contact: Contact, now: int) -> dict[str, Any] | None:
    if not is_group(contact.jid):
        return bodies.context_info(now)
    mentioned = [to_jid(number) for number in call.body.get("mentioned", [])]
    if call.body.get("mentionsEveryOne"):
        mentioned = list(contact.participants)
    return {"mentionedJid": mentioned} if mentioned else None


def _service_record(call: Call, content: Content, jid: str) -> dict[str, Any]:
    """The Cloud API channel, and the passive one, which answers with the bare number and no status."""
    cloud = call.instance.integration == BUSINESS
    extra = {"webhookUrl": call.body.get("webhookUrl"), "status": "PENDING"} if cloud else {}
    return {
        "key": {
            "fromMe": True,
            "id": wamid() if cloud else random_uuid(),
            "remoteJid": jid if cloud else call.body["number"],
        },
        "message": content.message,
        "messageType": content.message_type,
        "messageTimestamp": int(time.time()),
        **extra,
        "source": "unknown",
        "instanceId": call.instance.id,
    }


async def _accept(
    evolution: Evolution, call: Call, content: Content, record: dict[str, Any], contact: Contact
) -> Answer:
    """WhatsApp took the message. The ledger and the mailbox have it before anybody is told."""
    core, instance = evolution.core, call.instance
    if core.faults.take("zombie", Target(instance=instance.name, number=call.number, op=call.op)):
        evolution.mailbox.store(record, instance_id=instance.id, address=contact.address)
        evolution.events.emit(instance, "send.message", record, number=contact.jid)
        return 201, record
    receipts = evolution.receipts.plan(instance, jid=contact.jid, op=call.op)
    message = None
    with core.database.transaction():
        _enter(evolution, call, content, record)
        if call.saved:
            message = evolution.mailbox.store(
                record, instance_id=instance.id, address=contact.address, receipts=receipts
            )
    if message:
        told = partial(core.ledger.tell, key_id=message.key_id, status="PENDING")
        evolution.events.emit(instance, "send.message", record, number=contact.jid, taken=told)
        await _play(evolution, call, message)
    return 201, record


def _enter(evolution: Evolution, call: Call, content: Content, record: dict[str, Any]) -> None:
    evolution.core.ledger.append(
        instance=call.instance.name,
        number=call.number,
        remote_jid=record["key"]["remoteJid"],
        key_id=record["key"]["id"],
        kind=content.kind,
        text=content.text,
        body={name: value for name, value in call.body.items() if name not in ENVELOPE_FIELDS},
        asked_at=call.asked_at,
    )


async def _play(evolution: Evolution, call: Call, message: Message) -> None:
    target = Target(instance=call.instance.name, number=call.number, op=call.op)
    if message.receipts and evolution.core.faults.take("webhooks_before_answer", target):
        await evolution.receipts.play_overtaking(call.instance, message)
    else:
        evolution.receipts.play(call.instance, message)
