"""What Instagram is asked: direct messages, private replies and sender actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from instances.providers.base import OutboundMessage
from instances.providers.texts import as_text

ATTACHMENTS: Mapping[str, str] = {"image": "image", "video": "video", "audio": "audio", "document": "file"}

Body = dict[str, Any]


def direct(outbound: OutboundMessage) -> Body:
    """A direct message; with the tag that a person may use for a week where a person wrote it."""
    body: Body = {"recipient": {"id": outbound.to}, "message": _message(outbound)}
    if outbound.content.get("human_agent"):
        body |= {"messaging_type": "MESSAGE_TAG", "tag": "HUMAN_AGENT"}
    return body


def private_reply(outbound: OutboundMessage, comment_id: str) -> Body:
    """The one message that may answer a comment in private."""
    return {"recipient": {"comment_id": comment_id}, "message": _message(outbound)}


def action(person: str, name: str) -> Body:
    """What is shown to a person without a message."""
    return {"recipient": {"id": person}, "sender_action": name}


def text_of(outbound: OutboundMessage) -> str:
    """The text of a message: reply buttons are quick replies and not in it."""
    replies = _replies(outbound)
    return as_text(replace(outbound, buttons=()) if replies else outbound)


def _message(outbound: OutboundMessage) -> Body:
    if kind := ATTACHMENTS.get(outbound.kind):
        return {"attachment": {"type": kind, "payload": {"url": outbound.content["link"]}}}
    replies = _replies(outbound)
    return {"text": text_of(outbound)} | ({"quick_replies": replies} if replies else {})


def _replies(outbound: OutboundMessage) -> list[Body]:
    return [
        {"content_type": "text", "title": button.label, "payload": button.value}
        for button in outbound.buttons
        if button.kind == "reply"
    ]
