"""A message's texts: WhatsApp's markup drawn as WhatsApp draws it, and failures in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.template import Library
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from messaging import content
from messaging.models import FailureCode

register = Library()

# A mark counts only around text that does not start or end with a space: "2 * 3 * 4" stays as it is.
MARKS = {"*": "strong", "_": "em", "~": "s", "```": "code"}
PATTERNS = [
    (re.compile(rf"(?<!\w){re.escape(mark)}(?=\S)(.+?)(?<=\S){re.escape(mark)}(?!\w)"), tag)
    for mark, tag in MARKS.items()
]


@register.filter
def whatsapp(text: str) -> SafeString:
    """Bold, italic, struck out and fixed width as HTML; everything else escaped."""
    html: str = escape(text)
    for pattern, tag in PATTERNS:
        html = pattern.sub(rf"<{tag}>\1</{tag}>", html)
    return mark_safe(html)


@register.filter
def failure(code: str) -> str:
    """The sentence for a failure code."""
    return str(FailureCode(code).label)


@register.filter
def summary(of: Mapping[str, Any]) -> str:
    """What a person reads of a message's content: its text or caption, else what it is."""
    return content.summary(of) or content.kind_of(of)
