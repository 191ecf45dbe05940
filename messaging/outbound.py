"""A message row as its provider sees it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from instances.providers.base import OutboundMessage
from messaging.content import TEXT, kind_of
from messaging.models import Message
from messaging.rendering import buttons_of


def outbound_of(message: Message) -> OutboundMessage:
    """The plain value for a row; `content`, `to`, `recipient_id` and the ids must be loaded."""
    return outbound(
        id=message.pk,
        to=message.to,
        recipient_id=message.recipient_id,
        content=message.content,
        provider_message_id=message.provider_message_id or "",
        attempted_at=message.attempted_at,
    )


def outbound(
    *,
    id: str,
    to: str,
    recipient_id: str,
    content: Mapping[str, Any],
    provider_message_id: str = "",
    attempted_at: datetime | None = None,
    attempt: int = 1,
) -> OutboundMessage:
    """The plain value for a message that is not at hand as a row. KeyError for a text without its text."""
    return OutboundMessage(
        id=id,
        to=to,
        recipient_id=recipient_id,
        text=content["text"] if kind_of(content) == TEXT else content.get("text", ""),
        title=content.get("title", ""),
        footer=content.get("footer", ""),
        buttons=buttons_of(content),
        kind=kind_of(content),
        content=content,
        reply_to=content.get("reply_to", ""),
        provider_message_id=provider_message_id,
        attempted_at=attempted_at,
        attempt=attempt,
    )
