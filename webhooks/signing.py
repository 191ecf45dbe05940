"""Signatures as Standard Webhooks says (https://www.standardwebhooks.com), and the secrets they are made with.

An endpoint has one secret, and beside it, for a while after a rotation, those it replaced: every request then carries
a signature by each, and a receiver may check whichever it knows.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from django.utils.dateparse import parse_datetime

PREFIX = "whsec_"
TOLERANCE = timedelta(minutes=5)  # what receivers are advised to allow between clocks
HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")

Secrets = Sequence[Mapping[str, Any]]
Finding = Literal["valid", "headers_missing", "timestamp_unreadable", "no_match", "too_old", "too_new"]


def new_secret() -> str:
    """A secret of 256 random bits, as receivers keep it."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def working(kept: Secrets, *, now: datetime) -> list[str]:
    """The secrets to sign with at `now`, the newest first."""
    return [each["secret"] for each in kept if not _ended(each, now)]


def rotated(kept: Secrets, new: str, *, ends_at: datetime, now: datetime) -> list[dict[str, Any]]:
    """What to keep after `new` has replaced the first secret, which ends at `ends_at`."""
    still = [dict(each) for each in kept if not _ended(each, now)]
    for each in still:
        end = parse_datetime(each["ends_at"]) if each["ends_at"] else ends_at
        each["ends_at"] = min(end or ends_at, ends_at).isoformat()
    return [{"secret": new, "ends_at": None}, *(each for each in still if not _ended(each, now))]


def headers(event_id: str, body: bytes, *, secrets: Sequence[str], now: datetime) -> dict[str, str]:
    """The three headers of Standard Webhooks, with a signature by each of `secrets`."""
    timestamp = str(int(now.timestamp()))
    signatures = " ".join(sign(secret, event_id, timestamp, body) for secret in secrets)
    return dict(zip(HEADERS, (event_id, timestamp, signatures), strict=True))


def sign(secret: str, event_id: str, timestamp: str, body: bytes) -> str:
    """`v1,` and the base64 of the HMAC-SHA256 over id, timestamp and body."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    digest = hmac.new(key, f"{event_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def examine(given: Mapping[str, str], body: bytes, *, secrets: Sequence[str], now: datetime) -> Finding:
    """What a careful receiver finds: `valid`, or the first thing that is wrong. Header names may have any case."""
    names = {name.lower().strip(): value.strip() for name, value in given.items()}
    event_id, timestamp, signatures = (names.get(name, "") for name in HEADERS)
    if not (event_id and timestamp and signatures):
        return "headers_missing"
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 12):
        return "timestamp_unreadable"
    expected = [sign(secret, event_id, timestamp, body) for secret in secrets]
    if not any(_same(signature, one) for signature in signatures.split() for one in expected):
        return "no_match"
    age = now.timestamp() - int(timestamp)
    if abs(age) <= TOLERANCE.total_seconds():
        return "valid"
    return "too_old" if age > 0 else "too_new"


def _same(signature: str, expected: str) -> bool:
    try:
        return hmac.compare_digest(signature.encode(), expected.encode())
    except UnicodeEncodeError:
        return False


def _ended(each: Mapping[str, Any], now: datetime) -> bool:
    end = parse_datetime(each["ends_at"]) if each["ends_at"] else None
    return end is not None and end <= now
