"""What providers report: receipts move messages, those that come too early are parked, people's messages are kept.

News may be repeated, in any order, and be taken in by several processes at once: the outcome is the same. Batches
write each table in one order (messages, parked receipts, received messages, contacts; each sorted by its key), so
two of them wait for each other but do not deadlock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from psycopg.types.json import Jsonb

from accounts import events
from accounts.models import Event
from instances.models import Instance
from instances.providers.base import InboundMessage, StatusEvent
from messaging import echoes, numbers, status, unsubscribing, windows
from messaging.models import Contact, FailureCode, Message, ParkedReceipt, ReceivedMessage, Status
from messaging.status import Move
from messaging.windows import Failure, Heard
from pilot import locks, sql

PARKED_FOR = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One piece of news, and when it reached us. Providers' own clocks are not trusted for order."""

    instance: Instance
    event: StatusEvent | InboundMessage
    at: datetime


def apply(arrivals: Sequence[Arrival]) -> None:
    """Takes in news of any number of instances, in one transaction.

    IntegrityError or DataError when an item cannot be stored; nothing is then kept of the batch.
    """
    receipts = [_receipt(a.instance, a.event, a.at) for a in arrivals if isinstance(a.event, StatusEvent)]
    heard = [Heard(a.instance, a.event, a.at) for a in arrivals if isinstance(a.event, InboundMessage)]
    with transaction.atomic():
        _apply_or_park(receipts)
        new = _keep([_received(*each) for each in heard])
        _introduce(_contact(*each) for each in heard if not each.message.outgoing)
        windows.note_received(heard)
        unsubscribing.take_in(new)


def apply_parked(*, now: datetime, limit: int = 500) -> int:
    """Looks at up to `limit` parked receipts that are due: applies those whose message has its id by now.

    One transaction; returns how many were applied. A receipt and the answer to its send may be written at the same
    moment, neither seeing the other, so this runs again and again instead of once when an id is stored. Looks at a
    receipt grow apart with its age, because most that wait long are of messages sent by others. After PARKED_FOR it
    is dropped.
    """
    with transaction.atomic():
        if not _alone():
            return 0
        proved = echoes.identify()
        secrets = ("instance__credentials", "instance__hook_token")
        parked = ParkedReceipt.objects.select_related("instance").defer(*secrets)
        due = parked.filter(next_look_at__lte=now).order_by("next_look_at")[:limit]
        return proved + _apply_found(list(due), now)


# --- receipts ---------------------------------------------------------------------------------------------

# Lateral: one probe of the unique index for each id, never a join over all messages.
_KNOWN = """
SELECT named.instance_id, named.provider_message_id, m.id
FROM unnest(%s::bigint[], %s::text[]) AS named (instance_id, provider_message_id)
CROSS JOIN LATERAL (
    SELECT id FROM messaging_message
    WHERE instance_id = named.instance_id AND provider_message_id = named.provider_message_id LIMIT 1
) AS m
"""

# A provider may say the same twice and more the second time (Evolution: only its echo of a send has the text).
_PARK = """
INSERT INTO messaging_parkedreceipt AS known (instance_id, provider_message_id, status, detail, at, next_look_at)
SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::jsonb[], %s::timestamptz[], %s::timestamptz[])
ORDER BY 1, 2, 3
ON CONFLICT (instance_id, provider_message_id, status) DO UPDATE SET detail = known.detail || excluded.detail
WHERE NOT known.detail @> excluded.detail
"""

_LOOK_LATER = """
UPDATE messaging_parkedreceipt
SET next_look_at = %(now)s + least(greatest(%(now)s - at, interval '1 second'), interval '10 minutes')
WHERE id = ANY(%(ids)s)
"""


_OURS = """
SELECT named.instance_id, named.provider_message_id, m.id
FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS named (instance_id, provider_message_id, id)
JOIN messaging_message m ON m.id = named.id AND m.instance_id = named.instance_id
"""
# The names in ParkedReceipt.detail. Our own id is there where the provider gives it back.
OWN_ID = "message_id"
TOLD = ("code", "reason", "pricing", "conversation", "errors")


def _receipt(instance: Instance, event: StatusEvent, at: datetime) -> ParkedReceipt:
    detail = {
        **event.extra,
        OWN_ID: event.message_id,
        "code": event.code,
        "reason": event.detail,
        echoes.RECIPIENT: event.recipient_id,
        echoes.TEXT: event.text.strip(),
    }
    return ParkedReceipt(
        instance=instance,
        provider_message_id=event.provider_message_id,
        status=event.status,
        detail={name: value for name, value in detail.items() if value},
        at=at,
        next_look_at=at,
    )


def _apply_or_park(receipts: Sequence[ParkedReceipt]) -> None:
    if not receipts:
        return
    message_ids = _known(receipts)
    _apply_receipts([receipt for receipt in receipts if _key(receipt) in message_ids], message_ids)
    _park([receipt for receipt in receipts if _key(receipt) not in message_ids])


def _apply_receipts(receipts: Sequence[ParkedReceipt], message_ids: Mapping[tuple[int, str], str]) -> None:
    """Moves the messages; what a failure says of the person is taken in with it."""
    status.move(*(_move(receipt, message_ids[_key(receipt)]) for receipt in receipts))
    failed = {
        message_ids[_key(receipt)]: receipt
        for receipt in receipts
        if receipt.status == Status.FAILED and windows.applies_to(receipt.instance.provider)
    }
    if not failed:
        return
    rows = Message.objects.filter(pk__in=failed).values_list("pk", "instance_id", "to")
    windows.note_failures(
        [Failure(instance_id, to, _failure_code(failed[pk]), failed[pk].at) for pk, instance_id, to in rows]
    )


def _park(receipts: Sequence[ParkedReceipt]) -> None:
    parked: dict[tuple[int, str, str], ParkedReceipt] = {}
    for receipt in receipts:
        known = parked.setdefault((*_key(receipt), receipt.status), receipt)
        known.detail |= receipt.detail
    if not parked:
        return
    names = ("instance_id", "provider_message_id", "status", "detail", "at", "next_look_at")
    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in parked.values()] for name in names}
    columns["detail"] = [Jsonb(detail) for detail in columns["detail"]]
    with connection.cursor() as cursor:
        cursor.execute(_PARK, list(columns.values()))


def _apply_found(parked: Sequence[ParkedReceipt], now: datetime) -> int:
    if not parked:
        return 0
    message_ids = _known(parked)
    found = [receipt for receipt in parked if _key(receipt) in message_ids]
    _apply_receipts(found, message_ids)
    _merge_echoes([receipt for receipt in found if receipt.status == Status.SUBMITTED])
    dropped = [receipt for receipt in parked if receipt.at < now - PARKED_FOR]
    ParkedReceipt.objects.filter(pk__in=[receipt.pk for receipt in found + dropped]).delete()
    with connection.cursor() as cursor:
        cursor.execute(_LOOK_LATER, {"now": now, "ids": [receipt.pk for receipt in parked]})
    return len(found)


def _key(row: ParkedReceipt | ReceivedMessage) -> tuple[int, str]:
    return row.instance_id, row.provider_message_id


def _known(receipts: Sequence[ParkedReceipt]) -> Mapping[tuple[int, str], str]:
    """By (instance, provider's id), the message: by our own id where it came along, else by the provider's."""
    ours = [(*_key(receipt), receipt.detail[OWN_ID]) for receipt in receipts if OWN_ID in receipt.detail]
    known = _by_provider_id(receipts)
    if ours:
        with connection.cursor() as cursor:
            cursor.execute(_OURS, sql.transposed(ours))
            known |= {(instance_id, provider_id): pk for instance_id, provider_id, pk in cursor.fetchall()}
    return known


def _by_provider_id(rows: Sequence[ParkedReceipt | ReceivedMessage]) -> dict[tuple[int, str], str]:
    instance_ids, provider_ids = zip(*map(_key, rows), strict=True)
    with connection.cursor() as cursor:
        cursor.execute(_KNOWN, [list(instance_ids), list(provider_ids)])
        return {(instance_id, provider_id): pk for instance_id, provider_id, pk in cursor.fetchall()}


def _move(receipt: ParkedReceipt, message_id: str) -> Move:
    """The receipt as news for messaging/status.py, which decides whether it still changes anything."""
    failed = receipt.status == Status.FAILED
    return Move(
        message_id=message_id,
        to=receipt.status,
        at=receipt.at,
        failure_code=_failure_code(receipt) if failed else "",
        failure_detail=receipt.detail.get("reason", "") if failed else "",
        provider_message_id=receipt.provider_message_id,
        detail={name: receipt.detail[name] for name in TOLD if name in receipt.detail},
    )


def _failure_code(receipt: ParkedReceipt) -> str:
    code = receipt.detail.get("code", "")
    return code if code in FailureCode.values else FailureCode.UNDELIVERABLE


def _alone() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [locks.PARKED])
        return bool(cursor.fetchone()[0])


# --- people's messages ------------------------------------------------------------------------------------

# What a tenant or an earlier message said of a person is kept: only blanks are filled in.
_INTRODUCE = """
INSERT INTO messaging_contact AS known (tenant_id, number, recipient_id, user_id, name, created_at)
SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::timestamptz[]) ORDER BY 1, 2
ON CONFLICT (tenant_id, number) DO UPDATE SET
    recipient_id = CASE known.recipient_id WHEN '' THEN excluded.recipient_id ELSE known.recipient_id END,
    user_id = CASE excluded.user_id WHEN '' THEN known.user_id ELSE excluded.user_id END,
    name = CASE known.name WHEN '' THEN excluded.name ELSE known.name END
WHERE '' IN (known.recipient_id, known.name) OR excluded.user_id NOT IN ('', known.user_id)
"""


_KEPT = (
    "tenant_id",
    "instance_id",
    "provider_message_id",
    "sender_id",
    "sender_number",
    "kind",
    "text",
    "raw",
    "at",
    "user_id",
    "reply_to",
    "outgoing",
)
_KEEP = f"""
INSERT INTO messaging_receivedmessage ({", ".join(_KEPT)})
SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
                     %s::jsonb[], %s::timestamptz[], %s::text[], %s::text[], %s::boolean[])
ON CONFLICT (instance_id, provider_message_id) DO NOTHING
RETURNING instance_id, provider_message_id, id
"""


def _received(instance: Instance, message: InboundMessage, at: datetime) -> ReceivedMessage:
    return ReceivedMessage(
        tenant_id=instance.tenant_id,
        instance=instance,
        provider_message_id=message.provider_message_id,
        sender_id=message.sender_id,
        sender_number=_person(message.sender_number),
        kind=message.kind[:40],
        text=message.text,
        raw=dict(message.raw),
        at=message.at or at,
        user_id=message.user_id,
        reply_to=message.reply_to,
        outgoing=message.outgoing,
    )


def _contact(instance: Instance, message: InboundMessage, at: datetime) -> Contact:
    return Contact(
        tenant_id=instance.tenant_id,
        number=_person(message.sender_number),
        recipient_id=message.sender_id,
        user_id=message.user_id,
        name=message.sender_name[:120],
        created_at=message.at or at,
    )


def _person(number: str) -> str:
    """The one form under which a number is on record: WhatsApp leaves out the ninth digit of many."""
    return numbers.variants(number)[0]


def _keep(received: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
    """Stores what was not known yet, and lets the tenants' programs know of it. Returns what people wrote of it."""
    received = _without_echoes(received)
    if not received:
        return []
    columns = [[getattr(row, name) for row in sorted(received, key=_key)] for name in _KEPT]
    columns[_KEPT.index("raw")] = [Jsonb(raw) for raw in columns[_KEPT.index("raw")]]
    with connection.cursor() as cursor:
        cursor.execute(_KEEP, columns)
        new = {(row[0], row[1]): row[2] for row in cursor.fetchall()}
    first = {_key(row): row for row in reversed(received)}
    incoming = [row for row in received if first[_key(row)] is row and _key(row) in new and not row.outgoing]
    events.record_all(_news(row, new[_key(row)]) for row in incoming)
    return incoming


def _without_echoes(received: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
    """Without what the account "wrote" through us: that is a message already."""
    own = [row for row in received if row.outgoing]
    ours = _by_provider_id(own) if own else {}
    return [row for row in received if _key(row) not in ours]


def _merge_echoes(receipts: Sequence[ParkedReceipt]) -> None:
    """What was taken for the account's own turns out to be a message of ours, whose id came later."""
    if receipts:
        copies = ReceivedMessage.objects.filter(
            outgoing=True,
            instance__in={receipt.instance_id for receipt in receipts},
            provider_message_id__in=[receipt.provider_message_id for receipt in receipts],
        )
        copies.delete()


def _news(row: ReceivedMessage, pk: int) -> Event:
    data = {
        "id": str(pk),
        "instance": row.instance.name,
        "from": row.sender_number,
        "sender_id": row.sender_id,
        "kind": row.kind,
        "text": row.text,
        "provider_message_id": row.provider_message_id,
        "received_at": row.at.isoformat(),
    }
    return Event(
        tenant_id=row.tenant_id,
        kind="message.received",
        detail=data,
        at=row.at,
        subject=f"chat:{row.instance_id}:{row.sender_id}"[:64],
    )


def _introduce(contacts: Iterable[Contact]) -> None:
    """Records who wrote. People whose number the provider hides have no contact: only their messages are kept."""
    people: dict[tuple[int, str], Contact] = {}
    for contact in contacts:
        if contact.number:
            known = people.setdefault((contact.tenant_id, contact.number), contact)
            known.name = known.name or contact.name
    if not people:
        return
    names = ("tenant_id", "number", "recipient_id", "user_id", "name", "created_at")
    with connection.cursor() as cursor:
        cursor.execute(_INTRODUCE, [[getattr(row, name) for row in people.values()] for name in names])
