"""What the Cloud API is asked: one builder for each kind of content."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from instances.providers.base import Account, OutboundMessage
from instances.providers.texts import URL, as_text

TEXT_LIMIT, INTERACTIVE_LIMIT = 4096, 1024
FLOW_VERSION = "3"
BSUID = re.compile(r"[A-Z]{2}\.(ENT\.)?[0-9A-Za-z]{1,128}")  # a person without a number that we may see

Body = dict[str, Any]


def message(account: Account, outbound: OutboundMessage) -> Body:
    """The body that sends `outbound`."""
    body: Body = {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        **_recipient(outbound),
        **BUILDERS[outbound.kind](account, outbound),
        "biz_opaque_callback_data": outbound.id,
    }
    return body | ({"context": {"message_id": outbound.reply_to}} if outbound.reply_to else {})


def seen(provider_message_id: str) -> Body:
    """The body that marks a person's message as read."""
    return {"messaging_product": "whatsapp", "status": "read", "message_id": provider_message_id}


def _recipient(outbound: OutboundMessage) -> Body:
    """The number as the tenant knows it: the one that Meta answers with is sometimes refused (Mexico, Argentina)."""
    if BSUID.fullmatch(outbound.to):
        return {"recipient": outbound.to}
    return {"to": outbound.to.removeprefix("+")}


# --- one builder for each kind ----------------------------------------------------------------------------


def _text(account: Account, outbound: OutboundMessage) -> Body:
    if outbound.buttons and len(outbound.text) <= INTERACTIVE_LIMIT:
        if all(button.kind == "reply" for button in outbound.buttons):
            return _interactive(outbound, "button", _reply_buttons(outbound))
        if [button.kind for button in outbound.buttons] == ["url"]:
            return _interactive(outbound, "cta_url", _link_button(outbound))
    text = as_text(outbound)
    preview = account.link_preview and URL.search(text) is not None
    return {"type": "text", "text": {"body": text, "preview_url": preview}}


def _interactive(outbound: OutboundMessage, kind: str, action: Body) -> Body:
    interactive: Body = {"type": kind, "body": {"text": outbound.text}, "action": action}
    if outbound.title:
        interactive["header"] = {"type": "text", "text": outbound.title}
    if outbound.footer:
        interactive["footer"] = {"text": outbound.footer}
    return {"type": "interactive", "interactive": interactive}


def _reply_buttons(outbound: OutboundMessage) -> Body:
    replies = [{"id": button.value, "title": button.label} for button in outbound.buttons]
    return {"buttons": [{"type": "reply", "reply": reply} for reply in replies]}


def _link_button(outbound: OutboundMessage) -> Body:
    (button,) = outbound.buttons
    return {"name": "cta_url", "parameters": {"display_text": button.label, "url": button.value}}


def _media(kind: str, *optional: str) -> Callable[[Account, OutboundMessage], Body]:
    def build(_account: Account, outbound: OutboundMessage) -> Body:
        content = outbound.content
        source = {"id": content["media_id"]} if content.get("media_id") else {"link": content["link"]}
        return {"type": kind, kind: source | _given(content, *optional)}

    return build


def _given(content: Mapping[str, Any], *names: str) -> Body:
    return {name: content[name] for name in names if content.get(name)}


def _list(_account: Account, outbound: OutboundMessage) -> Body:
    sections = [
        {**_given(section, "title"), "rows": [_row(row) for row in section["rows"]]}
        for section in outbound.content["sections"]
    ]
    return _interactive(outbound, "list", {"button": outbound.content["button"], "sections": sections})


def _row(row: Mapping[str, Any]) -> Body:
    return {"id": row["id"], "title": row["title"], **_given(row, "description")}


def _flow(_account: Account, outbound: OutboundMessage) -> Body:
    content = outbound.content
    parameters: Body = {
        "flow_message_version": FLOW_VERSION,
        "flow_id": content["flow_id"],
        "flow_cta": content["button"],
        "flow_token": content.get("flow_token") or outbound.id,
        "mode": content.get("mode", "published"),
    }
    if screen := content.get("screen"):
        payload = {"screen": screen, **_given(content, "data")}
        parameters |= {"flow_action": "navigate", "flow_action_payload": payload}
    return _interactive(outbound, "flow", {"name": "flow", "parameters": parameters})


def _location_request(_account: Account, outbound: OutboundMessage) -> Body:
    return _interactive(outbound, "location_request_message", {"name": "send_location"})


def _location(_account: Account, outbound: OutboundMessage) -> Body:
    content = outbound.content
    place = {name: content[name] for name in ("latitude", "longitude")}
    return {"type": "location", "location": place | _given(content, "name", "address")}


def _contacts(_account: Account, outbound: OutboundMessage) -> Body:
    return {"type": "contacts", "contacts": [_contact(contact) for contact in outbound.content["contacts"]]}


def _contact(contact: Mapping[str, Any]) -> Body:
    """Meta wants another part of the name beside the whole."""
    name = {part: value for part, value in contact["name"].items() if value}
    if name.keys() == {"formatted_name"}:
        name["first_name"] = name["formatted_name"]
    return {"name": name, **_given(contact, "phones", "emails", "urls", "org")}


def _reaction(_account: Account, outbound: OutboundMessage) -> Body:
    content = outbound.content
    reaction = {"message_id": content["message_id"], "emoji": content["emoji"]}
    return {"type": "reaction", "reaction": reaction}


def _template(_account: Account, outbound: OutboundMessage) -> Body:
    content = outbound.content
    template: Body = {"name": content["name"], "language": {"code": content["language"]}}
    return {"type": "template", "template": template | _given(content, "components")}


BUILDERS: Mapping[str, Callable[[Account, OutboundMessage], Body]] = {
    "text": _text,
    "image": _media("image", "caption"),
    "video": _media("video", "caption"),
    "audio": _media("audio", "voice"),
    "document": _media("document", "caption", "filename"),
    "sticker": _media("sticker"),
    "list": _list,
    "flow": _flow,
    "location_request": _location_request,
    "location": _location,
    "contacts": _contacts,
    "reaction": _reaction,
    "template": _template,
}
