"""Signs of life of instances: what instances/health.py cannot ask for, because "open" may be said of a dead socket."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import connection

# Sorted, so that two batches do not deadlock. News may be late: what is known stays when it is newer.
_HEARD = """
INSERT INTO instances_vitals AS known
    (instance_id, heard_at, acknowledged_at, unheard, unheard_since, judged_count, canary_id)
SELECT id, heard_at, acknowledged_at, unheard, CASE WHEN unheard > 0 THEN acknowledged_at END, 0, ''
FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::int[])
     AS said (id, heard_at, acknowledged_at, unheard) ORDER BY id
ON CONFLICT (instance_id) DO UPDATE SET
    heard_at = greatest(known.heard_at, excluded.heard_at),
    acknowledged_at = greatest(known.acknowledged_at, excluded.acknowledged_at),
    unheard = CASE WHEN excluded.heard_at IS NULL THEN known.unheard + excluded.unheard ELSE 0 END,
    unheard_since = CASE WHEN excluded.heard_at IS NULL
                         THEN coalesce(known.unheard_since, excluded.unheard_since) END
"""


def heard(called: Mapping[int, datetime], *, acknowledged: Mapping[int, datetime]) -> None:
    """Notes the newest calls of webhooks, by instance id, and which of them brought receipts, at what time."""
    _note({key: (at, acknowledged.get(key), 0) for key, at in called.items()})


def asked(receipts: Mapping[int, int], *, at: datetime) -> None:
    """Notes receipts that no webhook brought: how many asking did, by instance id."""
    _note({key: (None, at, count) for key, count in receipts.items()})


def _note(signs: Mapping[int, tuple[datetime | None, datetime | None, int]]) -> None:
    if not signs:
        return
    columns: list[list[Any]] = [list(column) for column in zip(*signs.values(), strict=True)]
    with connection.cursor() as cursor:
        cursor.execute(_HEARD, [list(signs), *columns])
