"""Queued messages that can never go out are failed, and say what they lack.

The claim refuses them, too, when their turn comes; here the whole queue is looked at, a page at a time, so that nobody
waits for a message that is not coming.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction

from instances.models import Instance, InstanceStatus
from instances.providers import PROVIDERS
from messaging import status
from messaging.content import TEXT
from messaging.models import Category, FailureCode, Status
from messaging.outbound import outbound
from messaging.status import Move
from pilot import sql
from pilot.maintenance import SEEN, Batches

PAGE = 1000
# Nothing waits longer, whatever its deadline is.
QUEUE_TIMEOUT = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class _Queued:
    """A queued message, in the order of _QUEUED."""

    id: str
    deadline: datetime  # without zone, as in the index
    waits_since: datetime
    category: str
    to: str
    recipient_id: str
    content: str  # JSON: Django hands out jsonb of plain cursors as text
    body_override: bool
    template_version_id: int | None
    instance_id: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a queued message can never go out: a FailureCode, and the field where something is missing."""

    code: str
    field: str = ""

    def move(self, message_id: str, now: datetime) -> Move:
        detail = {"code": self.code} | ({"field": self.field} if self.field else {})
        return Move(
            message_id=message_id,
            to=Status.FAILED,
            at=now,
            failure_code=self.code,
            failure_detail=self.field,
            detail=detail,
        )


# By the one index that has every queued message. Its id makes a page end between equal deadlines.
_QUEUED = """
SELECT id, deliver_until AT TIME ZONE 'UTC', coalesce(scheduled_at, created_at), category, "to", recipient_id,
       content, body_override, template_version_id, instance_id
FROM messaging_message
WHERE status = 'queued' AND ((deliver_until AT TIME ZONE 'UTC'), id) > (%s::timestamp, %s::text)
ORDER BY (deliver_until AT TIME ZONE 'UTC'), id LIMIT %s
"""
_STILL_QUEUED = """
SELECT id FROM messaging_message WHERE id = ANY(%s) AND status = 'queued' ORDER BY id FOR UPDATE SKIP LOCKED
"""


def check_queue(now: datetime) -> Batches:
    """Looks at every queued message and fails those that can never go out, naming what is missing.

    By the same reading that the claim makes of a row, so that what it could send is never failed here.
    """
    for page in _pages():
        instances = Instance.objects.only("status", "provider", "provider_name").in_bulk(
            {message.instance_id for message in page}
        )
        faults = {
            message.id: fault
            for message in page
            if (fault := fault_of(message, instances[message.instance_id], now))
        }
        yield {SEEN: len(page)} | _fail(faults, now)


def _pages() -> Iterator[Sequence[_Queued]]:
    after = (datetime.min, "")
    while page := _page(*after):
        yield page
        after = (page[-1].deadline, page[-1].id)


def _page(deadline: datetime, message_id: str) -> list[_Queued]:
    with connection.cursor() as cursor:
        cursor.execute(_QUEUED, [deadline, message_id, PAGE])
        return [_Queued(*row) for row in cursor.fetchall()]


def fault_of(message: _Queued, instance: Instance, now: datetime) -> Fault | None:
    """Why `message` can never go out, or None. Pure."""
    if message.waits_since <= now - QUEUE_TIMEOUT:
        return Fault(FailureCode.QUEUE_TIMEOUT)
    if instance.status == InstanceStatus.REMOVED:
        return Fault(FailureCode.INSTANCE_REMOVED, "instance")
    missing = _missing(message, instance)
    return Fault(FailureCode.INVALID_CONTENT, missing) if missing else None


def _missing(message: _Queued, instance: Instance) -> str:
    """The field without which it cannot be sent; empty when all is there."""
    if not instance.provider_name or instance.provider not in PROVIDERS:
        return "instance"
    if not (message.to or message.recipient_id):
        return "to"
    # Own texts and conversations are made from no template.
    if not (message.body_override or message.template_version_id or message.category == Category.SESSION):
        return "template_version"
    return "" if _is_readable(message) else "content"


def _is_readable(message: _Queued) -> bool:
    try:
        content = json.loads(message.content)
        seen = outbound(id=message.id, to=message.to, recipient_id=message.recipient_id, content=content)
    except Exception:  # whatever a row that makes no sense may cause: the claim, too, takes it as a refusal
        return False
    return bool(seen.text) or seen.kind != TEXT


def _fail(faults: Mapping[str, Fault], now: datetime) -> Counter[str]:
    """Fails those that are still queued and that nobody else holds. Returns how many, by code."""
    if not faults:
        return Counter()
    with transaction.atomic():
        held = [row[0] for row in sql.fetch(_STILL_QUEUED, [list(faults)])]
        changed = status.move(*(faults[message_id].move(message_id, now) for message_id in held)).changed
    return Counter(str(faults[message_id].code) for message_id in changed)
