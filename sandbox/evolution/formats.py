"""Ids and timestamps in the formats Evolution writes them."""

from __future__ import annotations

import secrets
import string
import uuid
from datetime import UTC, datetime

BASE36 = string.digits + string.ascii_lowercase


def key_id() -> str:
    """A WhatsApp message id as Baileys makes it: 3EB0 and 18 upper-case hex digits."""
    return "3EB0" + secrets.token_hex(9).upper()


def wamid() -> str:
    return "wamid." + secrets.token_urlsafe(36)


def cuid() -> str:
    """A database id."""
    return "c" + "".join(secrets.choice(BASE36) for _ in range(24))


def random_uuid() -> str:
    return str(uuid.uuid4())


def instance_token() -> str:
    return random_uuid().upper()


def pairing_code() -> str:
    return "".join(secrets.choice(string.ascii_uppercase + string.digits) for _ in range(8))


def iso_now() -> str:
    """UTC with milliseconds and a Z."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def long(value: int, *, unsigned: bool = False) -> dict[str, object]:
    """A 64-bit integer as protobuf.js shows it in JSON."""
    return {"low": value, "high": 0, "unsigned": unsigned}


def octets(data: bytes) -> dict[str, int]:
    """Bytes as JSON.stringify shows a Uint8Array."""
    return {str(index): byte for index, byte in enumerate(data)}
