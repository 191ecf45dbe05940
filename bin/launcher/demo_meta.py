"""The demo's number on WhatsApp's Cloud API: an account in the sandbox, and a person who has just written to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from launcher import client

ACCOUNT = {
    "phone_number_id": "110000000000001",
    "business_id": "220000000000002",
    "token": "demo-token",
    "app_secret": "0123456789abcdef0123456789abcdef",
}
PERSON = "5511999990000"


def open_account(env: Mapping[str, str]) -> list[str]:
    """Make the account in the sandbox; returns what `manage.py demo` needs to link it, nothing without a sandbox."""
    fields = {
        "business_id": ACCOUNT["business_id"],
        "token": ACCOUNT["token"],
        "app_secret": ACCOUNT["app_secret"],
        "display_number": "+55 11 3000-0000",
    }
    return ["--meta", json.dumps(ACCOUNT)] if _control(env, "", fields) else []


def subscribe(env: Mapping[str, str], callback: Mapping[str, str]) -> None:
    """Let the account's webhook come to the product, and the person write, which opens the 24-hour window."""
    _control(env, "", {"webhook": callback["url"], "verify_token": callback["verify_token"]})
    _control(env, "/inbound", {"from": PERSON, "text": "Oi! Meu pedido saiu?"})


def message(instance: str) -> dict[str, object]:
    """The body of POST /api/messages for the demo on this channel."""
    buttons = [
        {"kind": "reply", "label": "Sim", "value": "yes"},
        {"kind": "reply", "label": "Ainda não", "value": "no"},
    ]
    return {
        "to": f"+{PERSON}",
        "text": "Saiu, sim! Chegou bem?",
        "buttons": buttons,
        "instance": instance,
        "urgent": True,
    }


def _control(env: Mapping[str, str], action: str, body: Mapping[str, object]) -> bool:
    path = f"/_sandbox/graph/accounts/{ACCOUNT['phone_number_id']}{action}"
    headers = {"X-Sandbox-Key": env["SANDBOX_API_KEY"]}
    port = urlsplit(env["META_GRAPH_URL"]).port or 80
    reply = client.call(port, "POST", path, body=body, headers=headers)
    return reply is not None and reply.status in (200, 201)
