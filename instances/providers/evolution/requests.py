"""What Evolution API is asked: URLs, bodies, and messages as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from instances.providers.base import Account, HookConfig, OutboundMessage, Request
from instances.providers.texts import URL, as_text

TIMEOUT = 15.0  # seconds, of everything but a send
MOST_REPLIES = 3
BUTTON_VALUES = {"reply": "id", "url": "url", "call": "phoneNumber", "copy": "copyCode"}


def request(
    account: Account,
    method: str,
    path: str,
    body: Any = None,
    *,
    query: Mapping[str, str] | None = None,
    named: bool = True,
    timeout: float = TIMEOUT,
) -> Request:
    """A request about the instance `account.name`, unless it is not `named` in the path.

    Only our own words may get into `query`: Evolution lets it override the instance of the path.
    """
    url = f"{account.base_url.rstrip('/')}/{path}"
    url += f"/{quote(account.name, safe='')}" if named else ""
    url += f"?{urlencode(query)}" if query else ""
    return Request(method, url, headers={"apikey": account.api_key}, json=body, timeout=timeout)


def instance(account: Account, hook_config: HookConfig) -> dict[str, Any]:
    """The body of instance/create."""
    return {
        "instanceName": account.name,
        "integration": "WHATSAPP-BAILEYS",
        "qrcode": False,
        "groupsIgnore": True,
        "webhook": hook(hook_config),
    }


def hook(config: HookConfig) -> dict[str, Any]:
    """A webhook that is on. Absent `headers` and `byEvents` would keep their old values."""
    return {
        "enabled": True,
        "url": config.url,
        "events": list(config.events),
        "headers": dict(config.headers),
        "byEvents": False,
        "base64": False,
    }


def number(message: OutboundMessage) -> str:
    """The JID that WhatsApp once answered with, else the digits of the number."""
    return message.recipient_id if "@" in message.recipient_id else message.to.removeprefix("+")


def message(account: Account, outbound: OutboundMessage) -> tuple[str, dict[str, Any]]:
    """The path and the body that send `outbound`."""
    if _native_buttons(account, outbound):
        return "message/sendButtons", {"number": number(outbound), **_buttons(outbound)}
    text = as_text(outbound)
    # Said either way: left out it means yes, and Evolution then downloads the address.
    preview = account.link_preview and URL.search(text) is not None
    return "message/sendText", {"number": number(outbound), "text": text, "linkPreview": preview}


def wire_text(account: Account, outbound: OutboundMessage) -> str:
    """The text that events show. Of real buttons that is "*title*" and the description."""
    if not _native_buttons(account, outbound):
        return as_text(outbound).strip()
    body = _buttons(outbound)
    return "\n\n".join(part for part in (f"*{body['title']}*", body.get("description")) if part)


def _native_buttons(account: Account, outbound: OutboundMessage) -> bool:
    """Whether to send real buttons: where wanted, and where Evolution would not refuse them together."""
    if not outbound.buttons or account.buttons_as_text:
        return False
    replies = sum(button.kind == "reply" for button in outbound.buttons)
    return replies == 0 or replies == len(outbound.buttons) <= MOST_REPLIES


def _buttons(outbound: OutboundMessage) -> dict[str, Any]:
    # Without a title people would read "*undefined*": the first line of the text takes its place.
    title, description = outbound.title, outbound.text
    if not title:
        title, _, description = outbound.text.partition("\n")
    optional = {"description": description.strip(), "footer": outbound.footer}
    buttons = [
        {"type": button.kind, "displayText": button.label, BUTTON_VALUES[button.kind]: button.value}
        for button in outbound.buttons
    ]
    return {"title": title, **{name: text for name, text in optional.items() if text}, "buttons": buttons}
