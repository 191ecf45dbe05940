"""What Instagram's answers mean. Unlike WhatsApp's, its subcodes matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from instances.providers.base import (
    AMBIGUOUS,
    COMMENT_ANSWERED,
    REJECTED_PAYLOAD,
    THROTTLED,
    UNDELIVERABLE,
    WINDOW_CLOSED,
    Answer,
    Outcome,
    ProviderError,
    Receipt,
)
from instances.providers.graph import errors
from instances.providers.graph.errors import BUSY, HOUR, TABLE, Verdict

SUBCODES: Mapping[int, Verdict] = {
    2534022: Verdict(WINDOW_CLOSED, Outcome.REJECTED),
    2018278: Verdict(WINDOW_CLOSED, Outcome.REJECTED),
    2534025: Verdict(COMMENT_ANSWERED, Outcome.REJECTED),
    2534014: Verdict(UNDELIVERABLE, Outcome.REJECTED),  # the person is gone
    2534001: Verdict(UNDELIVERABLE, Outcome.REJECTED),  # the conversation is gone
    2534013: Verdict(THROTTLED, Outcome.RETRY, HOUR),  # private replies of this hour
    1545133: BUSY,
}
CODES: Mapping[int, Verdict] = {
    **TABLE,
    551: Verdict(UNDELIVERABLE, Outcome.REJECTED),  # blocked us, or not there
    36000: Verdict(REJECTED_PAYLOAD, Outcome.REJECTED),  # the image is too large
}


def success(answer: Answer) -> Mapping[str, Any]:
    """The body of a 2xx answer. Raises ProviderError for any other."""
    if 200 <= answer.status < 300:
        return answer.body if isinstance(answer.body, dict) else {}
    raise errors.failure(answer, table=CODES, subcodes=SUBCODES)


def receipt(answer: Answer) -> Receipt:
    """What a direct message came to."""
    body = success(answer)
    return _receipt(body.get("message_id"), body.get("recipient_id", ""))


def comment(answer: Answer) -> Receipt:
    """What a public answer to a comment came to: the id of the new comment."""
    return _receipt(success(answer).get("id"), "")


def _receipt(said: Any, recipient_id: str) -> Receipt:
    if not said:
        raise ProviderError(AMBIGUOUS, "The answer names no message.", outcome=Outcome.UNKNOWN)
    return Receipt(provider_message_id=said, recipient_id=recipient_id, status="sent")


def done(answer: Answer) -> None:
    """Any success will do."""
    success(answer)


def state(answer: Answer) -> str:
    """An account that can be seen can send."""
    success(answer)
    return "open"
