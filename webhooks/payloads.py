"""What receivers read: the envelope of an event, and the data of what happened to a message."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from messaging.models import FailureCode, MessageEvent, Status
from webhooks.models import WebhookEvent


def body(event: WebhookEvent, *, version: str) -> bytes:
    """The request's body. The same event gives the same bytes at every attempt.

    There is one version so far; `version` is what an endpoint was made with.
    """
    return json.dumps(envelope(event), ensure_ascii=False, separators=(",", ":")).encode()


def envelope(event: WebhookEvent) -> dict[str, Any]:
    """The payload as a dict, see catalogue.ENVELOPE. `event.project` should be loaded."""
    return {
        "id": event.name,
        "type": event.type,
        "timestamp": instant(event.at),
        "environment": event.environment or None,
        "project": event.project.slug if event.project else None,
        "sample": event.sample,
        "data": event.data,
    }


def instant(at: datetime) -> str:
    """RFC 3339 in UTC."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def of_message(event: MessageEvent) -> dict[str, Any]:
    """The data of a message's event. Its message, with instance and template, should be loaded."""
    message = event.message
    version = message.template_version
    own = _OWN[event.kind](event) if event.kind in _OWN else {}
    return {
        "message_id": message.pk,
        "status": event.kind,
        "to": message.to,
        "instance": message.instance.name,
        "category": message.category,
        "template": version.template.name if version else None,
        "provider_message_id": message.provider_message_id,
        "metadata": message.metadata,
    } | own


def _requeued(event: MessageEvent) -> dict[str, Any]:
    if "why" not in event.detail:
        return {"requeued": None}
    return {"requeued": {name: event.detail.get(name) for name in ("why", "code", "next_attempt_at")}}


def _held(event: MessageEvent) -> dict[str, Any]:
    words = {name: str(event.detail.get(name, "")) for name in ("gate", "reason")}
    return {"held": words | {"until": event.detail.get("until")}}


def _failure(event: MessageEvent) -> dict[str, Any]:
    """By our closed list; the timeline's own code may be the provider's."""
    told = event.detail.get("code")
    known = told if told in FailureCode.values else FailureCode.UNDELIVERABLE
    return {
        "failure": {
            "code": event.message.failure_code or known,
            "detail": str(event.detail.get("reason", "")),
        }
    }


_OWN: Mapping[str, Callable[[MessageEvent], dict[str, Any]]] = {
    Status.QUEUED: _requeued,
    "held": _held,
    Status.FAILED: _failure,
}
