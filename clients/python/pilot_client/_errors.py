"""What can go wrong: one class for each meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from pilot_client._records import Message


class PilotError(Exception):
    """Everything that this package raises on purpose."""


class ConnectionFailed(PilotError):
    """The server was not reached: it never saw the request."""


class AnswerLost(PilotError):
    """The server may have seen the request, but its answer did not come in time or was cut off.

    Whether a change went through is not known. Sending again with the same Idempotency-Key is safe.
    """


class StillWaiting(PilotError):
    """The message did not get as far as was waited for. `message` is how it was last."""

    def __init__(self, message: Message) -> None:
        super().__init__(f"message {message.id} is still {message.status}")
        self.message = message


class InvalidSignature(PilotError):
    """A webhook call that is not from Pilot, or not from now. `reason` is one of `headers_missing`,
    `timestamp_unreadable`, `no_match`, `too_old` and `too_new`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Refusal(PilotError):
    """The server said no.

    `code` is one word for programs, `message` a sentence for people, `fields` says what is wrong with which field, and
    `request_id` is what to quote when you ask about it. `retry_after` is in seconds, where the server named a time.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str,
        fields: Mapping[str, Any],
        request_id: str,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {message}" + (f" {dict(fields)}" if fields else ""))
        self.message = message
        self.status = status
        self.code = code
        self.fields = dict(fields)
        self.request_id = request_id
        self.retry_after = retry_after


class InvalidRequest(Refusal):
    """Something in the request is wrong; `fields` says what."""


class Unauthenticated(Refusal):
    """The key is missing, wrong, expired or revoked."""


class Forbidden(Refusal):
    """The key lacks a scope."""


class OptInRequired(Forbidden):
    """Nothing is on record of the recipient's consent."""


class OptedOut(Forbidden):
    """The recipient asked not to be written to."""


class NotFound(Refusal):
    """There is no such thing, or the key may not see it."""


class Conflict(Refusal):
    """It cannot be done as things are."""


class NotCancellable(Conflict):
    """The message does not wait any more."""


class WouldBeLate(Conflict):
    """The message could not be sent before its deadline, and `refuse_if_late` was asked for."""


class StillRunning(Conflict):
    """A request with the same Idempotency-Key is being accepted at this moment."""


class IdempotencyKeyReused(Refusal):
    """The Idempotency-Key came before with another message."""


class TooLarge(Refusal):
    """The body is too long."""


class RateLimited(Refusal):
    """Too many requests; `retry_after` says when to go on."""


class ServerFailed(Refusal):
    """Something went wrong on the server's side."""


class Unavailable(ServerFailed):
    """The service is away for a moment."""


class GatewayFailed(ServerFailed):
    """The provider behind an instance did not do what was asked."""


BY_CODE: dict[str, type[Refusal]] = {
    "opt_in_required": OptInRequired,
    "opted_out": OptedOut,
    "not_cancellable": NotCancellable,
    "would_be_late": WouldBeLate,
    "still_running": StillRunning,
    "idempotency_key_reused": IdempotencyKeyReused,
}
BY_STATUS: dict[int, type[Refusal]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    429: RateLimited,
    502: GatewayFailed,
    503: Unavailable,
    504: Unavailable,
}


def refusal_of(answer: httpx.Response) -> Refusal:
    """What an answer that is no success means. A proxy's page, which has no code, gets `http_502` or so."""
    error = _envelope(answer)
    code = str(error.get("code", f"http_{answer.status_code}"))
    return _class_of(code, answer.status_code)(
        str(error.get("message", answer.reason_phrase)),
        status=answer.status_code,
        code=code,
        fields=error.get("fields") or {},
        request_id=str(error.get("request_id") or answer.headers.get("X-Request-Id", "")),
        retry_after=_seconds(answer.headers.get("Retry-After", "")),
    )


def _class_of(code: str, status: int) -> type[Refusal]:
    general = ServerFailed if status >= 500 else InvalidRequest
    return BY_CODE.get(code) or BY_STATUS.get(status, general)


def _envelope(answer: httpx.Response) -> Mapping[str, Any]:
    try:
        error = answer.json()["error"]
    except (ValueError, LookupError, TypeError):
        return {}
    return error if isinstance(error, Mapping) else {}


def _seconds(written: str) -> float | None:
    return float(written) if written.isascii() and written.isdigit() else None
