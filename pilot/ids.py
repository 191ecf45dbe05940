"""Public ids: UUIDv7 as text, so that they sort by the time they were made."""

from __future__ import annotations

from uuid_utils import uuid7


def new_id() -> str:
    """A 36-character UUIDv7."""
    return str(uuid7())
