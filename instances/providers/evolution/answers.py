"""What Evolution API's answers mean. It says the same thing with several statuses, so its words decide first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from instances.providers.base import (
    AMBIGUOUS,
    DISCONNECTED,
    INSTANCE_REMOVED,
    MISCONFIGURED,
    NOT_ON_WHATSAPP,
    REJECTED_PAYLOAD,
    THROTTLED,
    Answer,
    HookConfig,
    Outcome,
    Pairing,
    ProviderError,
    Receipt,
)
from instances.providers.evolution import events

STATES = {"open": "open", "connecting": "connecting", "close": "closed"}

Verdict = tuple[str, Outcome]  # a ProviderError's code and outcome

DOWN: Verdict = (DISCONNECTED, Outcome.INSTANCE_DOWN)
GONE: Verdict = (INSTANCE_REMOVED, Outcome.INSTANCE_DOWN)
WRONG_SETUP: Verdict = (MISCONFIGURED, Outcome.INSTANCE_DOWN)
REFUSED: Verdict = (REJECTED_PAYLOAD, Outcome.REJECTED)
ABSENT: Verdict = (NOT_ON_WHATSAPP, Outcome.REJECTED)
SLOW_DOWN: Verdict = (THROTTLED, Outcome.RETRY)
UNCLEAR: Verdict = (AMBIGUOUS, Outcome.UNKNOWN)

# The first of these words that a complaint has.
BY_WORDS: Mapping[str, Verdict] = {
    "LICENSE_REQUIRED": WRONG_SETUP,
    "instance does not exist": GONE,
    "is not connected": DOWN,
    "Connection Closed": DOWN,
    "onWhatsApp": DOWN,
    "TypeError:": DOWN,
    "rate-overlimit": SLOW_DOWN,
    "Timed Out": UNCLEAR,
    "[object Object]": REFUSED,
}
# A JavaScript exception turned into text. It may come from after the send, so it proves nothing.
EXCEPTION = re.compile(r"\b\w*Error:")
# What a status says when the words do not. What is not here is unclear.
BY_STATUS: Mapping[int, Verdict] = {
    **dict.fromkeys((301, 302, 303, 307, 308), WRONG_SETUP),  # http where https is meant
    400: REFUSED,
    401: WRONG_SETUP,
    403: WRONG_SETUP,
    404: WRONG_SETUP,  # no such route: another version, or not Evolution
    405: WRONG_SETUP,
    413: REFUSED,
    422: REFUSED,
    429: SLOW_DOWN,
}


def receipt(answer: Answer) -> Receipt:
    """What a send came to. Raises ProviderError unless the message was taken over."""
    if answer.status == 400 and "Prisma" in complaint(answer):
        # Saving failed after the send, so no id and no webhook (observed on 2.3.7). It must not be sent again.
        return Receipt(provider_message_id="", recipient_id="", status="submitted")
    body = success(answer)
    key = body.get("key")
    if not isinstance(key, dict) or not key.get("id"):
        raise _no_receipt(body)
    return Receipt(provider_message_id=key["id"], recipient_id=key.get("remoteJid", ""), status="submitted")


def success(answer: Answer) -> Mapping[str, Any]:
    """The body of a 2xx answer, {} where there is none. Raises ProviderError for any other."""
    if not 200 <= answer.status < 300:
        raise _error(answer)
    return answer.body if isinstance(answer.body, dict) else {}


def done(answer: Answer) -> None:
    """Any success will do."""
    success(answer)


def created(answer: Answer) -> Mapping[str, Any]:
    """The new instance; {} for one that exists already."""
    if answer.status == 403 and "already in use" in complaint(answer):
        return {}
    instance = success(answer).get("instance")
    if not isinstance(instance, dict):
        raise _provider_error(UNCLEAR, "The answer describes no instance.")
    return instance


def pairing(answer: Answer) -> Pairing:
    """What to scan or type; nothing yet when Evolution has no code after its 2 seconds."""
    body = _connected(answer)
    return Pairing(already_open=True) if _state_word(body) == "open" else events.pairing(body)


def state(answer: Answer) -> str:
    """open, connecting or closed. A restart in mid-connection answers with a code instead."""
    body = _connected(answer)
    if "count" in body or "code" in body:
        return "connecting"
    return STATES.get(_state_word(body), "closed")  # known but not loaded: no state at all


def logged_out(answer: Answer) -> None:
    """Success, or nothing to log out."""
    if answer.status != 400 or "is not connected" not in complaint(answer):
        success(answer)


def deleted(answer: Answer) -> None:
    """Success, or nothing to delete."""
    if answer.status != 404 or "instance does not exist" not in complaint(answer):
        success(answer)


def hook(answer: Answer) -> HookConfig | None:
    """The webhook that is on, if any. One without a list of events is on for none."""
    body = success(answer)
    if not body.get("enabled"):
        return None
    events = body.get("events")
    subscribed = [event for event in events if isinstance(event, str)] if isinstance(events, list) else []
    plain = not body.get("webhookByEvents") and not body.get("webhookBase64")
    return HookConfig(
        url=body.get("url") or "", events=subscribed, headers=body.get("headers") or {}, plain=plain
    )


def complaint(answer: Answer) -> str:
    """Everything that an error says, on one line."""
    message = _message(answer)
    items = message if isinstance(message, list) else [message]
    code = answer.body.get("code") if isinstance(answer.body, dict) else None
    return "; ".join(word for word in [*_flat(items), code] if isinstance(word, str))


def _message(answer: Answer) -> Any:
    """The message of the error envelope: a string, a list of strings or objects, or a list of lists."""
    if not isinstance(answer.body, dict):
        return None
    response = answer.body.get("response")
    return response.get("message") if isinstance(response, dict) else answer.body.get("message")


def _flat(items: Sequence[Any]) -> list[Any]:
    return [leaf for item in items for leaf in (item if isinstance(item, list) else [item])]


def _no_receipt(body: Mapping[str, Any]) -> ProviderError:
    """A success that is none: a connection's state in place of a message, or an error of Meta's under a 201."""
    if _state_word(body) in {"close", "connecting"}:
        return _provider_error(DOWN, "The number is not connected.")
    error = body.get("error", body)
    if isinstance(error, dict) and "code" in error and error.get("message"):
        return _provider_error(REFUSED, str(error["message"]))
    return _provider_error(UNCLEAR, "The answer names no message.")


def _connected(answer: Answer) -> Mapping[str, Any]:
    """connect and restart report their failures with status 200."""
    body = success(answer)
    if body.get("error"):
        raise _provider_error(DOWN, complaint(answer))
    return body


def _state_word(body: Mapping[str, Any]) -> str:
    instance = body.get("instance")
    return str((instance if isinstance(instance, dict) else body).get("state", ""))


def _error(answer: Answer) -> ProviderError:
    words = complaint(answer)
    detail = words or f"HTTP {answer.status} without an explanation"
    return _provider_error(_verdict(answer, words), detail, retry_after=_retry_after(answer))


def _verdict(answer: Answer, words: str) -> Verdict:
    message = _message(answer)
    items = message if isinstance(message, list) else []
    if any(isinstance(item, list) for item in items):
        return REFUSED  # failed the validation against a schema
    if any(isinstance(item, dict) and item.get("exists") is False for item in items):
        return ABSENT
    for fragment, verdict in BY_WORDS.items():
        if fragment in words:
            return verdict
    if EXCEPTION.search(words) or (answer.status == 400 and not words):
        return UNCLEAR
    return BY_STATUS.get(answer.status, UNCLEAR)


def _provider_error(verdict: Verdict, detail: str, *, retry_after: float | None = None) -> ProviderError:
    code, outcome = verdict
    return ProviderError(code, detail[:300], outcome=outcome, retry_after=retry_after)


def _retry_after(answer: Answer) -> float | None:
    seconds = answer.headers.get("retry-after", "")
    return float(seconds) if seconds.isdecimal() else None
