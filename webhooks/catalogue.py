"""The event catalogue: everything that an endpoint can be told, with a JSON Schema and an example of its data.

`docs/webhook-events.md` is written from here (`manage.py describe_webhooks`). Data may gain fields within a version;
nothing in it changes its meaning or goes away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from messaging.models import Category

Schema = dict[str, Any]

VERSIONS = ("1",)


@dataclass(frozen=True)
class EventType:
    """One kind of event: `properties` describe its data, `example` is one of it."""

    name: str
    description: str
    properties: Mapping[str, Schema]
    example: Mapping[str, Any]

    @cached_property
    def schema(self) -> Schema:
        """The JSON Schema of `data`."""
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": self.name,
            "type": "object",
            "properties": dict(self.properties),
            "required": list(self.properties),
        }


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description} | more


def _maybe(description: str, **more: Any) -> Schema:
    return {"type": ["string", "null"], "description": description} | more


def _number(description: str) -> Schema:
    return {"type": "integer", "minimum": 0, "description": description}


def _instant(description: str) -> Schema:
    return _text(description, format="date-time")


# --- messages ---------------------------------------------------------------------------------------------

_MESSAGE: Mapping[str, Schema] = {
    "message_id": _text("The message's id, as the API gave it when it was accepted."),
    "status": _text("What happened to it: the second half of the event's type."),
    "to": _text("The recipient's number in E.164."),
    "instance": _text("The name of the instance that it is sent from."),
    "category": _text("What it is for.", enum=Category.values),
    "template": _maybe("The template's name; null for a text of your own."),
    "provider_message_id": _maybe("Its id at the provider, once it is known."),
    "metadata": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "description": "What you sent along.",
    },
}
_MESSAGE_EXAMPLE: Mapping[str, Any] = {
    "message_id": "01a228e8-b0e0-76d8-8e58-6f34379b5939",
    "to": "+5511999990000",
    "instance": "loja-centro",
    "category": "utility",
    "template": "pedido_enviado",
    "provider_message_id": "3EB0538DA65A59F6D8A251",
    "metadata": {"order": "1042"},
}
_REQUEUED = {
    "type": ["object", "null"],
    "description": "Why it was put back into the queue; null when it was accepted just now.",
    "properties": {
        "why": _text("`retry`, `instance_down` or another word."),
        "code": _maybe("What the provider's answer came to."),
        "next_attempt_at": _maybe("When it is tried again; null: as soon as it can.", format="date-time"),
    },
}
_HELD = {
    "type": "object",
    "description": "What it waits for.",
    "properties": {
        "gate": _text("The gate that is closed: `instance`, `breaker`, `daily_cap`."),
        "reason": _text("Why it is closed."),
        "until": _maybe("Until when, where that is known.", format="date-time"),
    },
    "required": ["gate", "reason", "until"],
}
_FAILURE = {
    "type": "object",
    "description": "Why it failed.",
    "properties": {
        "code": _text("One word, such as `expired`, as in the API. Codes may be added."),
        "detail": _text("What the provider said, where it said something."),
    },
    "required": ["code", "detail"],
}


def _message(status: str, description: str, **own: tuple[Schema, Any]) -> EventType:
    return EventType(
        name=f"message.{status}",
        description=description,
        properties={**_MESSAGE, **{name: schema for name, (schema, _example) in own.items()}},
        example={
            **_MESSAGE_EXAMPLE,
            "status": status,
            **{name: example for name, (_s, example) in own.items()},
        },
    )


# --- everything else --------------------------------------------------------------------------------------

_INSTANCE: Mapping[str, Schema] = {
    "instance": _text("The instance's name."),
    "number": _text("Its number in E.164; empty until it was connected."),
    "status": _text("What it has become.", enum=["open", "degraded", "closed", "removed"]),
    "reason": _text("Why, in one word or as the provider said it; empty where nobody said."),
}
_CAMPAIGN: Mapping[str, Schema] = {
    "campaign_id": _text("The campaign's id."),
    "name": _text("Its name."),
    "status": _text("What it has become: the second half of the event's type."),
}


def _instance(name: str, description: str, status: str, reason: str) -> EventType:
    example = {"instance": "loja-centro", "number": "+5511988880000", "status": status, "reason": reason}
    return EventType(f"instance.{name}", description, _INSTANCE, example)


def _campaign(status: str, description: str) -> EventType:
    example = {"campaign_id": "01a228e9-5d11-7c33-9d2e-0f4f1f0f6a10", "name": "Natal 2026", "status": status}
    return EventType(f"campaign.{status}", description, _CAMPAIGN, example)


TYPES: Mapping[str, EventType] = {
    each.name: each
    for each in (
        _message(
            "queued",
            "The message was accepted, or put back into the queue to be tried again.",
            requeued=(_REQUEUED, None),
        ),
        _message(
            "held",
            "The message has to wait for more than its turn.",
            held=(_HELD, {"gate": "instance", "reason": "closed", "until": None}),
        ),
        _message("submitted", "The provider took the message over."),
        _message("sent", "WhatsApp acknowledged the message."),
        _message("delivered", "The message reached the telephone."),
        _message("read", "The message was read, where the recipient lets that be known."),
        _message("played", "The recipient played the message's audio or video."),
        _message(
            "failed",
            "The message failed for good. Rarely, a late proof that it arrived comes after it.",
            failure=(_FAILURE, {"code": "expired", "detail": ""}),
        ),
        _message("cancelled", "The message was cancelled before it was sent."),
        EventType(
            "message.received",
            "A person wrote to one of your instances.",
            {
                "id": _text("The received message's id."),
                "instance": _text("The instance that was written to."),
                "from": _text("The sender's number in E.164; empty where the provider hides it."),
                "sender_id": _text("The sender's id at the provider."),
                "kind": _text("The kind of message, in the provider's words."),
                "text": _text("Its text or caption; may be empty."),
                "provider_message_id": _text("Its id at the provider."),
                "received_at": _instant("When it was written."),
            },
            {
                "id": "18233",
                "instance": "loja-centro",
                "from": "+5511987654321",
                "sender_id": "5511987654321@s.whatsapp.net",
                "kind": "conversation",
                "text": "Chegou, obrigada!",
                "provider_message_id": "3A0C538DA65A59F6D8A2",
                "received_at": "2026-11-29T12:00:03+00:00",
            },
        ),
        EventType(
            "optin.changed",
            "A person agreed to be written to, or asked not to be.",
            {
                "number": _text("Whose consent, in E.164."),
                "status": _text("What it is now.", enum=["granted", "revoked"]),
                "source": _text("Where that came from."),
            },
            {"number": "+5511987654321", "status": "revoked", "source": "whatsapp"},
        ),
        _instance("connected", "The instance is connected and delivers.", "open", ""),
        _instance("disconnected", "The instance has no connection any more.", "closed", "logged_out"),
        _instance("degraded", "The instance is connected but does not deliver.", "degraded", "no_answer"),
        _campaign("started", "The campaign began to send."),
        _campaign("paused", "The campaign was paused."),
        _campaign("resumed", "The campaign goes on."),
        _campaign("completed", "Everything of the campaign has been sent or has failed."),
        _campaign("cancelled", "The campaign was cancelled; what was not sent yet is not sent."),
        EventType(
            "usage.threshold",
            "A part of what the plan includes is used up.",
            {
                "month": _text("The month that it is about, such as 2026-11."),
                "used": _number("Messages used in it."),
                "included": _number("Messages that the plan includes."),
                "percent": _number("Which threshold was passed."),
            },
            {"month": "2026-11", "used": 8000, "included": 10000, "percent": 80},
        ),
        EventType(
            "endpoint.disabled",
            "Pilot disabled one of your endpoints. Your other endpoints are told.",
            {
                "endpoint_id": _text("The endpoint's id."),
                "url": _text("Its URL."),
                "reason": _text("Why.", enum=["gone", "failing"]),
                "failing_since": _maybe("Since when nothing had arrived there.", format="date-time"),
            },
            {
                "endpoint_id": "01a228ea-7c61-7b0f-8f7e-2a1c5f1d9b77",
                "url": "https://example.com/pilot",
                "reason": "failing",
                "failing_since": "2026-11-28T11:20:00+00:00",
            },
        ),
    )
}

ENVELOPE: Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Payload, version 1",
    "type": "object",
    "properties": {
        "id": _text("The event's id, the same as in the header webhook-id and the same at every attempt."),
        "type": _text("What happened.", enum=list(TYPES)),
        "timestamp": _instant("When it happened."),
        "environment": {
            "enum": ["live", "test", None],
            "description": "Where; null for what concerns both, such as an instance.",
        },
        "project": _maybe("The project's short name; null for what concerns the whole tenant."),
        "sample": {"type": "boolean", "description": "True for a test: nothing has happened."},
        "data": {"type": "object", "description": "What the event's type says."},
    },
    "required": ["id", "type", "timestamp", "environment", "project", "sample", "data"],
}
