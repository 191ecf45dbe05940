"""A message written as one text, for where a provider has no better form."""

from __future__ import annotations

import re
from collections.abc import Sequence

from instances.providers.base import Button, OutboundMessage

URL = re.compile(r"https?://\S", re.IGNORECASE)


def as_text(outbound: OutboundMessage) -> str:
    """Title in bold, text, buttons as lines, footer in italics."""
    title = f"*{outbound.title}*" if outbound.title else ""
    footer = f"_{outbound.footer}_" if outbound.footer else ""
    parts = [title, outbound.text, _button_lines(outbound.buttons), footer]
    return "\n\n".join(part for part in parts if part)


def _button_lines(buttons: Sequence[Button]) -> str:
    replies = [button.label for button in buttons if button.kind == "reply"]
    numbered = [f"{position} – {label}" for position, label in enumerate(replies, start=1)]
    others = [f"{button.label}: {button.value}" for button in buttons if button.kind != "reply"]
    return "\n".join(numbered + others)
