"""What a provider says, cut to what can be stored: nothing that it sends may be refused by the database."""

from __future__ import annotations

import math
import re
from typing import Any

# As long as the columns: tests/providers/test_bounds.py compares them.
ID_LENGTH = 255  # Instagram's are about 160 characters
ADDRESS_LENGTH = 140  # a business-scoped id of WhatsApp
DETAIL_LENGTH = 500
MOST_COUNTED = 32_767
LONGEST_WAIT_SECONDS = 3600.0

# PostgreSQL stores no NUL, and half of a surrogate pair is no character.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


def identifier(said: Any, *, most: int) -> str:
    """An id as it is; empty for what is none or does not fit, because a part of an id would be another's id."""
    text = str(said) if isinstance(said, str | int) and not isinstance(said, bool) else ""
    return text if len(text) <= most and text.isascii() and text.isprintable() else ""


def text(said: str, *, most: int) -> str:
    """Words for people: what cannot be stored is replaced, what is too long is cut."""
    return _UNSTORABLE.sub(_REPLACEMENT, said)[:most]


def wait(seconds: float | None) -> float | None:
    """How long a provider asks us to wait: an hour at most, and never into the past."""
    if seconds is None or math.isnan(seconds):
        return None
    return min(max(seconds, 0.0), LONGEST_WAIT_SECONDS)


def count(said: Any) -> int:
    """A number of times; 0 for what is none."""
    return min(max(said, 0), MOST_COUNTED) if isinstance(said, int) else 0


def storable(value: Any) -> Any:
    """Parsed JSON without what no column can hold: NUL and lone surrogates are replaced, NaN and infinity are null."""
    if isinstance(value, str):
        return _UNSTORABLE.sub(_REPLACEMENT, value)
    if isinstance(value, list):
        return [storable(item) for item in value]
    if isinstance(value, dict):
        return {storable(name): storable(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
