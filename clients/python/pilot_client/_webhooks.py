"""Checking that a webhook call is from Pilot, as Standard Webhooks says (https://www.standardwebhooks.com)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence

from pilot_client._errors import InvalidSignature
from pilot_client._records import WebhookEvent

HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    tolerance: float = 300,
    now: float | None = None,
) -> WebhookEvent:
    """The event that a call brings, once its signature and its time are right.

    `body` is the request's body as it came, not parsed and written again. `secret` is the endpoint's, or several of
    which one must match. `tolerance` is in seconds; `now` is a Unix time. Raises InvalidSignature.
    """
    event_id, timestamp, signatures = _named(headers)
    secrets = [secret] if isinstance(secret, str) else secret
    expected = [_sign(each, event_id, timestamp, body) for each in secrets]
    given = [signature.encode() for signature in signatures.split()]
    if not any(hmac.compare_digest(one, other) for one in given for other in expected):
        raise InvalidSignature("no_match")
    age = (time.time() if now is None else now) - int(timestamp)
    if abs(age) > tolerance:
        raise InvalidSignature("too_old" if age > 0 else "too_new")
    return WebhookEvent.of(json.loads(body))


def _named(headers: Mapping[str, str]) -> tuple[str, str, str]:
    names = {name.lower(): value for name, value in headers.items()}
    event_id, timestamp, signatures = (names.get(name, "") for name in HEADERS)
    if not (event_id and timestamp and signatures):
        raise InvalidSignature("headers_missing")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 12):
        raise InvalidSignature("timestamp_unreadable")
    return event_id, timestamp, signatures


def _sign(secret: str, event_id: str, timestamp: str, body: bytes) -> bytes:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{event_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return b"v1," + base64.b64encode(digest)
