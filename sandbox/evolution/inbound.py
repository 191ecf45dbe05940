"""Messages from outside: what customers, and the owner's own phone, send to an instance."""

from __future__ import annotations

import time
from typing import Any

from sandbox.evolution.formats import key_id
from sandbox.evolution.instances import Instance
from sandbox.evolution.server import Evolution
from sandbox.numbers import Contact


def receive(evolution: Evolution, instance: Instance, body: dict[str, Any]) -> dict[str, Any]:
    """A message from outside reaches the instance: stored, and announced as messages.upsert.

    `body`: from, text or message + message_type, push_name, from_me (sent on the owner's phone), and lid:
    false, "alt" (remoteJid is a @lid, the phone in remoteJidAlt), "swapped" (the other way round, both the
    phone) or "bare" (a @lid and no phone)."""
    record = _inbound_record(evolution, instance, body)
    evolution.mailbox.store(record, instance_id=instance.id)
    jid = record["key"]["remoteJid"]
    evolution.events.emit(instance, "messages.upsert", record, number=jid)
    event = "contacts.upsert" if evolution.mailbox.meet(instance.id, jid) else "contacts.update"
    contact = {"remoteJid": jid, "pushName": body.get("push_name", ""), "profilePicUrl": None}
    evolution.events.emit(instance, event, {**contact, "instanceId": instance.id}, number=jid)
    return record


def _inbound_record(evolution: Evolution, instance: Instance, body: dict[str, Any]) -> dict[str, Any]:
    contact = evolution.core.directory.find(body["from"])
    from_me = bool(body.get("from_me"))
    phone_only = {"status": "DELIVERY_ACK"} if not from_me else {}
    return {
        "key": {
            **_address_of(contact, body.get("lid") or ("alt" if contact.lid else "")),
            "fromMe": from_me,
            "id": body.get("id") or ("3EB0" if from_me else "3A") + key_id()[4:],
        },
        "pushName": body.get("push_name") or contact.name or "",
        **phone_only,
        "message": body.get("message") or {"conversation": body.get("text", "")},
        "messageType": body.get("message_type", "conversation"),
        "messageTimestamp": int(time.time()),
        "instanceId": instance.id,
        "source": "unknown" if from_me else "ios",
    }


def _address_of(contact: Contact, lid: str | bool) -> dict[str, str]:
    if not lid:
        return {"remoteJid": contact.jid}
    if lid == "bare":
        return {"remoteJid": contact.lid_jid, "addressingMode": "lid"}
    shown = contact.jid if lid == "swapped" else contact.lid_jid
    return {"remoteJid": shown, "remoteJidAlt": contact.jid, "addressingMode": "lid"}
