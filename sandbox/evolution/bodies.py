"""WhatsApp message bodies as Evolution 2.3.7 builds and shows them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import mimetypes
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandbox.evolution.errors import bad_request
from sandbox.evolution.formats import long, octets, random_uuid

MEDIA_URL = re.compile(r"^https?://[^\s/]+", re.IGNORECASE)
BASE64 = re.compile(r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")
EPHEMERAL_AGE = 2 * 24 * 3600


@dataclass(frozen=True)
class Content:
    """What is sent: `text` is what a person would read of it."""

    kind: str
    text: str
    message_type: str
    message: dict[str, Any]


def text_content(body: dict[str, Any]) -> Content:
    text = body["text"]
    if not text.strip():
        raise bad_request("Text is required")
    return Content(kind="text", text=text, message_type="conversation", message={"conversation": text})


def template_content(body: dict[str, Any]) -> Content:
    template = {"name": body["name"], "language": body["language"], "components": body.get("components", [])}
    message = {"template": template}
    return Content(kind="template", text=body["name"], message_type="template", message=message)


def context_info(now: int) -> dict[str, Any]:
    """What Evolution adds to every message to a single person."""
    return {
        "mentionedJid": [],
        "groupMentions": [],
        "ephemeralSettingTimestamp": long(now - EPHEMERAL_AGE),
        "disappearingMode": {"initiator": 0},
    }


# Button type -> (name of the native flow, its parameters made from the button).
BUTTONS: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "reply": ("quick_reply", lambda b: {"display_text": b.get("displayText"), "id": b.get("id")}),
    "copy": ("cta_copy", lambda b: {"display_text": b.get("displayText"), "copy_code": b.get("copyCode")}),
    "url": (
        "cta_url",
        lambda b: {
            "display_text": b.get("displayText"),
            "url": b.get("url"),
            "merchant_url": b.get("url"),
        },
    ),
    "call": (
        "cta_call",
        lambda b: {"display_text": b.get("displayText"), "phone_number": b.get("phoneNumber")},
    ),
    "pix": (
        "payment_info",
        lambda b: {
            "currency": b.get("currency"),
            "key": b.get("key"),
            "key_type": b.get("keyType"),
            "merchant_name": b.get("name"),
        },
    ),
}


def buttons_content(body: dict[str, Any]) -> Content:
    buttons = body["buttons"]
    check_buttons([button["type"] for button in buttons])
    title, description = body.get("title", "undefined"), body.get("description")
    text = f"*{title}*" + (f"\n\n{description}\n" if description else "")
    interactive = {
        "body": {"text": text},
        "footer": {"text": body["footer"]} if "footer" in body else {},
        "nativeFlowMessage": {
            "buttons": [_native_button(button) for button in buttons],
            "messageParamsJson": _compact({"from": "api", "templateId": random_uuid()}),
        },
    }
    message = {"viewOnceMessage": {"message": {"interactiveMessage": interactive}}}
    return Content(kind="buttons", text=text, message_type="viewOnceMessage", message=message)


def check_buttons(types: list[str]) -> None:
    """Which buttons may stand together in one message."""
    replies, pix = types.count("reply"), types.count("pix")
    others = len(types) - replies - pix
    if not types:
        raise bad_request("At least one button is required")
    if replies and len(types) > 3:
        raise bad_request("Maximum of 3 reply buttons allowed")
    if replies and others:
        raise bad_request("Reply buttons cannot be mixed with other button types")
    if pix > 1:
        raise bad_request("Only one PIX button is allowed")
    if pix and len(types) > 1:
        raise bad_request("PIX button cannot be mixed with other button types")


def _native_button(button: dict[str, Any]) -> dict[str, str]:
    name, parameters = BUTTONS[button["type"]]
    given = {key: value for key, value in parameters(button).items() if value is not None}
    return {"name": name, "buttonParamsJson": _compact(given)}


def _compact(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def is_url(media: str) -> bool:
    return MEDIA_URL.match(media) is not None


def decode_media(body: dict[str, Any]) -> bytes:
    """The bytes of a base64 `media`; Evolution's two refusals otherwise."""
    media = body.get("media", "")
    if not media or not BASE64.match(media):
        raise bad_request("Owned media must be a url or base64")
    if body["mediatype"] == "document" and not body.get("fileName"):
        raise bad_request("For base64 the file name must be informed.")
    try:
        return base64.b64decode(media, validate=True)
    except binascii.Error as error:
        raise bad_request("Owned media must be a url or base64") from error


def media_content(body: dict[str, Any], data: bytes) -> Content:
    kind, caption = body["mediatype"], body.get("caption")
    now = int(time.time())
    guessed, _encoding = mimetypes.guess_type(body.get("fileName") or body.get("media", ""))
    inner = {
        "url": "https://mmg.whatsapp.net/sandbox",
        "mimetype": body.get("mimetype") or guessed or "application/octet-stream",
        **({"caption": caption} if caption else {}),
        **({"fileName": body["fileName"]} if kind == "document" and "fileName" in body else {}),
        **(_picture(data) if kind == "image" else {}),
        "fileSha256": octets(hashlib.sha256(data).digest()),
        "fileLength": long(len(data), unsigned=True),
        "mediaKey": octets(secrets.token_bytes(32)),
        "fileEncSha256": octets(secrets.token_bytes(32)),
        "directPath": "/sandbox",
        "mediaKeyTimestamp": long(now),
        "contextInfo": context_info(now),
    }
    name = f"{kind}Message"
    return Content(kind="media", text=caption or "", message_type=name, message={name: inner})


def _picture(data: bytes) -> dict[str, Any]:
    """What only images carry. The thumbnail is a token: nothing is scaled here."""
    return {
        "interactiveAnnotations": [],
        "scanLengths": [],
        "annotations": [],
        "height": 1,
        "width": 1,
        "jpegThumbnail": octets(data[:64]),
    }
