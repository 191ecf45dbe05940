"""Writes an accepted message down whole: idempotency key, message, first event and usage, as one statement.

Each part is made FROM the one before it, so a key that somebody else has leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from billing import metering
from messaging.models import Message
from pilot import sql


@dataclass(frozen=True, slots=True)
class TakenKey:
    """A client's Idempotency-Key and the digest of the request that it stands for."""

    key: str
    digest: str


_COLUMNS = [
    "id",
    "tenant_id",
    "project_id",
    "instance_id",
    "template_version_id",
    "environment",
    "source",
    "to",
    "recipient_id",
    "category",
    "urgent",
    "body_override",
    "variables",
    "content",
    "metadata",
    "created_at",
    "deliver_until",
    "expected_at",
    "attempts",
    "held_by",
    "late",
    "status",
    "failure_code",
    "failure_detail",
]
_JSON = {"variables", "content", "metadata"}

# The advisory lock turns "somebody is at it" into an answer at once: the unique index alone would make us wait for
# the other transaction. It ends with ours, so whoever gets it sees what the other one wrote.
_TAKE = """
INSERT INTO messaging_idempotencykey (tenant_id, environment, key, body_digest, message_id)
SELECT %s::bigint, %s::text, %s::text, %s::text, %s::text
WHERE pg_try_advisory_xact_lock(hashtextextended(%s::text || %s::text, %s::bigint))
ON CONFLICT (tenant_id, environment, key) DO NOTHING RETURNING true
"""
_CASTS = {
    "expected_at": "timestamptz",
    "template_version_id": "bigint",
}  # where a NULL has no type of its own


def _statement(take: str) -> str:
    values = ", ".join(f"%s::{_CASTS[name]}" if name in _CASTS else "%s" for name in _COLUMNS)
    return f"""
WITH taken AS ({take}), message AS (
    INSERT INTO messaging_message ({", ".join(f'"{name}"' for name in _COLUMNS)})
    SELECT {values} FROM taken RETURNING id, tenant_id, status, created_at
), event AS (
    INSERT INTO messaging_messageevent (message_id, tenant_id, kind, detail, at, applied)
    SELECT id, tenant_id, status, %s::jsonb, created_at, true FROM message RETURNING true
), usage AS ({metering.counting("event")})
SELECT true FROM event
"""


_PLAIN = _statement("SELECT true")
_ONCE = _statement(_TAKE)


def store(message: Message, *, detail: Mapping[str, Any], once: TakenKey | None = None) -> bool:
    """Inserts a message that is due at once, with `detail` in its first event.

    False, and nothing written, when another request has the Idempotency-Key `once`, or is taking it just now.
    """
    take = _take_values(message, once) if once else []
    columns = [_value(message, name) for name in _COLUMNS]
    usage = metering.counting_values(
        project=message.project, environment=message.environment, now=message.created_at
    )
    statement = _ONCE if once else _PLAIN
    return bool(sql.fetch(statement, [*take, *columns, Jsonb(dict(detail)), *usage]))


def _take_values(message: Message, once: TakenKey) -> list[Any]:
    tenant, environment = message.tenant_id, message.environment
    return [tenant, environment, once.key, once.digest, message.pk, environment, once.key, tenant]


def _value(message: Message, name: str) -> Any:
    value = getattr(message, name)
    return Jsonb(value) if name in _JSON else value
