"""Whom a message is for: a telephone number, or where the provider has them its own id of a person.

An id comes from what the person wrote or commented, so nobody has to agree again before it is answered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from instances.models import Provider

LONGEST = 140
# The ids of people that each provider's messages may be addressed to.
IDS: Mapping[str, re.Pattern[str]] = {
    Provider.META: re.compile(r"[A-Z]{2}\.(ENT\.)?[0-9A-Za-z]{1,128}"),  # business-scoped
    Provider.INSTAGRAM: re.compile(r"[0-9]{5,30}"),  # Instagram-scoped
}


def is_id(to: str, *, provider: str) -> bool:
    """Whether `to` is one of the provider's own ids of people."""
    pattern = IDS.get(provider)
    return pattern is not None and pattern.fullmatch(to) is not None


def needs_id(provider: str) -> bool:
    """Whether this provider knows no telephone numbers."""
    return provider == Provider.INSTAGRAM
