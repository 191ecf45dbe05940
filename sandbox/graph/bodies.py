"""What the Cloud API checks of a message before it takes it over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sandbox.graph.errors import GraphError

Body = Mapping[str, Any]

MEDIA = ("image", "video", "audio", "document", "sticker")
CAPTIONED = frozenset({"image", "video", "document"})
ENVELOPE = frozenset(
    {
        "messaging_product",
        "recipient_type",
        "to",
        "recipient",
        "type",
        "context",
        "biz_opaque_callback_data",
    }
)
MOST_CALLBACK = 512
TEXT_LIMIT = 4096


def kind_of(body: Body) -> str:
    return str(body.get("type") or "text")


def check(body: Body) -> None:
    """Raises GraphError naming the first thing that is wrong."""
    kind = kind_of(body)
    if kind not in CHECKS:
        raise GraphError(131009, f"Unsupported message type {kind}")
    if not body.get("to") and not body.get("recipient"):
        raise GraphError(131008, "The parameter to is required.")
    if stray := set(body) - ENVELOPE - {kind}:
        raise GraphError(100, f'Unexpected key "{min(stray)}" on param "".')
    if len(str(body.get("biz_opaque_callback_data", ""))) > MOST_CALLBACK:
        raise GraphError(131009, "biz_opaque_callback_data must be at most 512 characters")
    if kind not in body:
        raise GraphError(131008, f"The parameter {kind} is required.")
    CHECKS[kind](body[kind])


def text_of(body: Body) -> str:
    """The words of a message, for the ledger."""
    kind = kind_of(body)
    part = body.get(kind)
    if not isinstance(part, Mapping):
        return ""
    if kind == "interactive":
        return str((part.get("body") or {}).get("text", ""))
    names = {"text": "body", "template": "name", "reaction": "emoji", "location": "name"}
    return str(part.get(names.get(kind, "caption"), ""))


def _text(part: Any) -> None:
    body = part.get("body") if isinstance(part, dict) else None
    if not body:
        raise GraphError(131008, "The parameter text['body'] is required.")
    if len(body) > TEXT_LIMIT:
        raise GraphError(100, "Param text['body'] must be at most 4096 characters long.")


def _media(kind: str) -> Callable[[Any], None]:
    def check(part: Any) -> None:
        if not isinstance(part, dict) or bool(part.get("id")) == bool(part.get("link")):
            raise GraphError(100, f"Exactly one of id and link is needed in {kind}")
        if part.get("caption") and kind not in CAPTIONED:
            raise GraphError(100, f'Unexpected key "caption" on param "{kind}"')

    return check


def _interactive(part: Any) -> None:
    kind = str(part.get("type")) if isinstance(part, dict) else ""
    if kind not in INTERACTIVE:
        raise GraphError(131009, f"Invalid interactive type {kind}")
    if not isinstance(part.get("action"), dict):
        raise GraphError(131008, "The parameter interactive['action'] is required.")
    body = (part.get("body") or {}).get("text", "")
    if not body:
        raise GraphError(131008, "The parameter interactive['body'] is required.")
    if len(body) > 1024:
        raise GraphError(131009, "Body text length invalid. Min length: 1, Max length: 1024")
    INTERACTIVE[kind](part["action"])


def _buttons(action: Body) -> None:
    buttons = action.get("buttons") or []
    if not 1 <= len(buttons) <= 3:
        raise GraphError(131009, "Invalid buttons count. Min allowed buttons: 1, Max allowed buttons: 3")
    titles = [button.get("reply", {}).get("title", "") for button in buttons]
    if any(not 1 <= len(title) <= 20 for title in titles):
        raise GraphError(131009, "Button title length invalid. Min length: 1, Max length: 20")
    if len(set(titles)) < len(titles):
        raise GraphError(131009, "Button titles must be unique")


def _list(action: Body) -> None:
    rows = [row for section in action.get("sections") or [] for row in section.get("rows", [])]
    if not 1 <= len(rows) <= 10:
        raise GraphError(131009, "Total row count exceed max allowed count: 10")


def _named(action: Body) -> None:
    if not action.get("name"):
        raise GraphError(131008, "The parameter interactive['action']['name'] is required.")


INTERACTIVE: Mapping[str, Callable[[Body], None]] = {
    "button": _buttons,
    "list": _list,
    "cta_url": _named,
    "flow": _named,
    "location_request_message": _named,
}


def _location(part: Any) -> None:
    for name in ("latitude", "longitude"):
        if not isinstance(part, dict) or not isinstance(part.get(name), int | float):
            raise GraphError(131009, f"location['{name}'] must be a number")


def _contacts(part: Any) -> None:
    if not isinstance(part, list) or not 1 <= len(part) <= 5:
        raise GraphError(131009, "contacts must have 1 to 5 items")
    for contact in part:
        if not contact.get("name", {}).get("formatted_name"):
            raise GraphError(131008, "The parameter contacts[0]['name']['formatted_name'] is required.")


def _reaction(part: Any) -> None:
    if not isinstance(part, dict) or not part.get("message_id"):
        raise GraphError(131008, "The parameter reaction['message_id'] is required.")


def _template(part: Any) -> None:
    if not isinstance(part, dict) or not part.get("name"):
        raise GraphError(131008, "The parameter template['name'] is required.")
    if not isinstance(part.get("language"), dict) or not part["language"].get("code"):
        raise GraphError(131008, "The parameter template['language']['code'] is required.")


CHECKS: Mapping[str, Callable[[Any], None]] = {
    "text": _text,
    **{kind: _media(kind) for kind in MEDIA},
    "interactive": _interactive,
    "location": _location,
    "contacts": _contacts,
    "reaction": _reaction,
    "template": _template,
}
