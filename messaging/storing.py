"""Writes accepted messages down whole: idempotency keys, messages, first events and usage, as one statement.

Each part is made FROM the one before it, so a key that somebody else has leaves nothing behind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from billing import metering
from messaging.models import Message, Status
from pilot import sql


@dataclass(frozen=True, slots=True)
class Entry:
    """A message that is due at once, or at its `next_attempt_at`, with the `detail` of its first event.

    `key` and `digest` are a client's Idempotency-Key and what it stands for; both empty without one.
    """

    message: Message
    detail: Mapping[str, Any]
    key: str = ""
    digest: str = ""


# What differs from message to message, with its type. The columns that are missing here are the same for all.
_COLUMNS = {
    "id": "text",
    "tenant_id": "bigint",
    "project_id": "bigint",
    "instance_id": "bigint",
    "template_version_id": "bigint",
    "environment": "text",
    "source": "text",
    "to": "text",
    "recipient_id": "text",
    "category": "text",
    "urgent": "boolean",
    "body_override": "boolean",
    "variables": "jsonb",
    "content": "jsonb",
    "metadata": "jsonb",
    "reference": "text",
    "created_at": "timestamptz",
    "scheduled_at": "timestamptz",
    "next_attempt_at": "timestamptz",
    "deliver_until": "timestamptz",
    "expected_at": "timestamptz",
}
_EXTRA = {"key": "text", "digest": "text", "detail": "jsonb", "month": "date", "slot": "smallint"}
_SAME = {
    "status": f"'{Status.QUEUED.value}'",
    "attempts": "0",
    "late": "false",
    "held_by": "''",
    "failure_code": "''",
    "failure_detail": "''",
}
_TYPES = ", ".join(f'"{name}" {kind}' for name, kind in (_COLUMNS | _EXTRA).items())
_NAMES = ", ".join(f'"{name}"' for name in _COLUMNS)

# The advisory lock turns "somebody is at it" into an answer at once: the unique index alone would make us wait for
# the other transaction. It ends with ours, so whoever gets it sees what the other one wrote.
_STORE = f"""
WITH entry AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%s::json) AS entry ({_TYPES})
), taken AS (
    INSERT INTO messaging_idempotencykey (tenant_id, environment, key, body_digest, message_id)
    SELECT tenant_id, environment, key, digest, id FROM entry
    WHERE key <> '' AND pg_try_advisory_xact_lock(hashtextextended(environment || key, tenant_id))
    ON CONFLICT (tenant_id, environment, key) DO NOTHING RETURNING message_id
), message AS (
    INSERT INTO messaging_message ({_NAMES}, {", ".join(_SAME)})
    SELECT {_NAMES}, {", ".join(_SAME.values())} FROM entry
    WHERE key = '' OR id IN (SELECT message_id FROM taken)
    RETURNING id
), event AS (
    INSERT INTO messaging_messageevent (message_id, tenant_id, kind, detail, at, applied)
    SELECT id, tenant_id, '{Status.QUEUED.value}', detail, created_at, true FROM message JOIN entry USING (id)
    RETURNING message_id
), label AS (
    INSERT INTO messaging_messagelabel (message_id, project_id, name, value)
    SELECT entry.id, project_id, name, value FROM entry JOIN message USING (id)
    CROSS JOIN LATERAL (SELECT '', reference WHERE reference <> ''
                        UNION ALL SELECT * FROM jsonb_each_text(metadata)) AS label (name, value)
), usage AS ({metering.counting("entry JOIN event ON event.message_id = entry.id")})
SELECT message_id FROM event
"""


def store(entries: Sequence[Entry]) -> set[str]:
    """Inserts what nobody else has the Idempotency-Key of, or is taking just now. Returns the ids that were stored."""
    slot = metering.any_slot()
    rows = [_row(entry) | {"slot": slot} for entry in entries]
    return {message_id for (message_id,) in sql.fetch(_STORE, [json.dumps(rows, default=str)])}


def _row(entry: Entry) -> dict[str, Any]:
    message = entry.message
    month = metering.month_of(message.tenant, message.created_at)
    extra = {"key": entry.key, "digest": entry.digest, "detail": entry.detail, "month": month}
    return {name: getattr(message, name) for name in _COLUMNS} | extra
