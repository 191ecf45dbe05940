"""What the Cloud API's answers say where they are no errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from instances.providers.base import AMBIGUOUS, Answer, Outcome, ProviderError, Receipt
from instances.providers.graph.errors import success
from instances.providers.graph.payloads import items, mapping


def receipt(answer: Answer) -> Receipt:
    """What a send came to. Raises ProviderError unless Meta took the message over."""
    body = success(answer)
    messages, contacts = items(body.get("messages")), items(body.get("contacts"))
    if not messages or not messages[0].get("id"):
        raise ProviderError(AMBIGUOUS, "The answer names no message.", outcome=Outcome.UNKNOWN)
    contact = contacts[0] if contacts else {}
    recipient = contact.get("wa_id") or contact.get("user_id") or ""
    return Receipt(provider_message_id=messages[0]["id"], recipient_id=recipient, status="submitted")


def done(answer: Answer) -> None:
    """Any success will do."""
    success(answer)


def state(answer: Answer) -> str:
    """A number that can be seen can send: what blocks it is said by the sends."""
    success(answer)
    return "open"


def page(answer: Answer) -> tuple[Sequence[Mapping[str, Any]], str]:
    """The items of a list, and the cursor of the page after it."""
    body = success(answer)
    paging = mapping(body.get("paging"))
    after = str(mapping(paging.get("cursors")).get("after") or "") if paging.get("next") else ""
    return items(body.get("data")), after


def media_id(answer: Answer) -> str:
    """The id of what was uploaded."""
    found = success(answer).get("id")
    if not isinstance(found, str | int):
        raise ProviderError(AMBIGUOUS, "The answer names no file.", outcome=Outcome.RETRY)
    return str(found)
