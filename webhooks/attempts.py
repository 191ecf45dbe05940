"""One attempt of a delivery: the request, and what the log keeps of it, without secrets and bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from instances.providers import bounds
from pilot.logs import SECRET_NAMES
from pilot.outbound import Answer, Unanswered
from webhooks import payloads, signing
from webhooks.claiming import Claim

BODY_KEPT = 4096  # bytes of an answer
HEADERS_KEPT = 30
VALUE_KEPT = 300  # characters of a header
SHORTEST_SECRET = 6  # a shorter value would be found everywhere
HIDDEN = "***"
COOKIE = "set-cookie"


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent for a claim."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    at: datetime


class Unsigned(Exception):
    """There is no secret to sign with. What cannot be signed is not sent."""


def prepare(claim: Claim, *, now: datetime) -> Request:
    """The signed request. The body is the same at every attempt; timestamp and signatures are not. Raises Unsigned."""
    endpoint, event = claim.endpoint, claim.delivery.event
    body = payloads.body(event, version=endpoint.version)
    secrets = signing.working(endpoint.secrets, now=now)
    if not secrets:
        raise Unsigned
    own: Mapping[str, str] = endpoint.headers
    signed = signing.headers(event.name, body, secrets=secrets, now=now)
    headers = {**own, "Content-Type": "application/json", "User-Agent": "Pilot-Webhooks/1", **signed}
    return Request(endpoint.url, headers, body, now)


def entry(claim: Claim, request: Request, result: Answer | Unanswered) -> dict[str, Any]:
    """The attempt as the delivery's log keeps it.

    {"at", "seconds", "url", "status": int or null, "error": code or "", "reason", "request_headers",
    "response_headers", "response_body"}; the values of the endpoint's own headers, cookies, and secrets that come back
    in an answer are hidden.
    """
    answered = result if isinstance(result, Answer) else None
    own: Mapping[str, str] = claim.endpoint.headers
    hidden = _hidden(claim)
    return {
        "at": payloads.instant(request.at),
        "seconds": round(result.seconds, 3),
        "url": request.url,
        "status": answered.status if answered else None,
        "error": "" if isinstance(result, Answer) else result.code,
        "reason": "" if isinstance(result, Answer) else result.reason,
        "request_headers": {
            name: HIDDEN if name in own else value for name, value in request.headers.items()
        },
        "response_headers": _readable(answered.headers, hidden) if answered else {},
        "response_body": _clean(answered.body[:BODY_KEPT].decode(errors="replace"), hidden)
        if answered
        else "",
    }


def fault(claim: Claim, result: Unanswered) -> dict[str, Any]:
    """The entry of an attempt that never began, by a fault of ours."""
    request = Request(claim.endpoint.url, {}, b"", claim.claimed_at)
    return entry(claim, request, result)


def bare(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry without what came from outside."""
    return {**entry, "reason": "", "response_headers": {}, "response_body": ""}


def _hidden(claim: Claim) -> list[str]:
    """Values that must not be read in the log, the longest first."""
    values = [*claim.endpoint.headers.values(), *(each["secret"] for each in claim.endpoint.secrets)]
    bare = [value.removeprefix(signing.PREFIX) for value in values]
    return sorted(
        {value for value in (*values, *bare) if len(value) >= SHORTEST_SECRET}, key=len, reverse=True
    )


def _readable(headers: Mapping[str, str], hidden: Iterable[str]) -> dict[str, str]:
    kept = list(headers.items())[:HEADERS_KEPT]
    return {_clean(name, ())[:100]: _value(name, value, hidden) for name, value in kept}


def _value(name: str, value: str, hidden: Iterable[str]) -> str:
    if name == COOKIE or SECRET_NAMES.search(name):
        return HIDDEN
    return _clean(value, hidden)[:VALUE_KEPT]


def _clean(text: str, hidden: Iterable[str]) -> str:
    """Text that can be stored and shown."""
    for value in hidden:
        text = text.replace(value, HIDDEN)
    return str(bounds.storable(text))
