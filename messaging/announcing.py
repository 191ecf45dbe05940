"""What the status stream says about a message: `StatusStreamEvent`, camelCase as its readers expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from messaging.models import MessageEvent, Status
from pilot import outbox
from pilot.redis import client

STREAM = "stream:status"
# The stream's words where they differ from ours.
WORDS: Mapping[str, str] = {Status.SUBMITTED: "sent", Status.QUEUED: "pending"}


def relay() -> int:
    """Numbers and announces a batch of message events. Returns how many were announced."""
    outbox.number(MessageEvent)
    events = MessageEvent.objects.select_related("message")
    return outbox.announce(events, stream=STREAM, redis=client(), encode=_encode)


def _encode(events: Sequence[MessageEvent]) -> list[dict[str, Any]]:
    return [_payload(event) for event in events]


def _payload(event: MessageEvent) -> dict[str, Any]:
    message = event.message
    payload = {
        "position": event.position,
        "kind": event.kind,
        "internalId": message.pk,
        "wamid": message.provider_message_id,
        "status": WORDS.get(event.kind, event.kind),
        "source": message.source,
        "type": "text",
        "recipientId": message.to,
        "timestamp": int(event.at.timestamp() * 1000),
    }
    if event.kind == Status.FAILED:
        payload["error"] = event.detail
    return payload
