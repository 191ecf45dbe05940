"""What of messages may go. The rows themselves stay: Idempotency-Keys stand for them for ever, and so does usage.

Timelines go once every reader has read them and the message no longer waits. What was written to whom is blanked at an
age that each tenant may set: from then on a message is its number, its metadata, its times and what became of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q, QuerySet

from accounts.models import Environment, Tenant
from messaging.models import CommentAnswer, Message, MessageEvent, Purge, ReceivedMessage, Window
from messaging.status import WAITING
from pilot import outbox, sql
from pilot.maintenance import SEEN, Batches, Step
from pilot.models import RetentionPlace
from pilot.retention import PAGE, cutoff, pruned, rest

# What a blanked message has for a content. Valid wherever one is shown.
BLANKED = {"text": "", "blanked": True}
_BEGINNING = datetime.fromisoformat("2000-01-01T00:00:00+00:00")


def _told_events() -> QuerySet[MessageEvent]:
    """Events that are only history: nobody has to read them any more, and their message is not waiting."""
    told = Q(position__lte=outbox.read_by_all(MessageEvent)) | Q(applied=False)
    return MessageEvent.objects.filter(told).exclude(message__status__in=WAITING)


def blank_contents(now: datetime) -> Batches:
    """Blanks what old messages said, tenant by tenant, from where the last round ended."""
    for tenant_id, days in Tenant.objects.order_by("pk").values_list("pk", "contents_days").iterator():
        days = settings.RETENTION_DAYS["message_contents"] if days is None else days
        for environment in Environment.values if days else ():
            yield from _blank(tenant_id, environment, now - timedelta(days=days))


def _blank(tenant_id: int, environment: str, before: datetime) -> Batches:
    name = f"message_contents.{tenant_id}.{environment}"
    place = RetentionPlace.objects.filter(pk=name).values_list("reached", flat=True).first() or _BEGINNING
    kept = False
    for page in _pages(tenant_id, environment, place, before):
        started = time.monotonic()
        # A message that waits (scheduled for months ahead) keeps its content, and the place stays before it.
        kept = kept or any(status in WAITING for _id, _created_at, status in page)
        with transaction.atomic():
            blanked = _blank_page([row[0] for row in page])
            if not kept:
                RetentionPlace.objects.update_or_create(pk=name, defaults={"reached": page[-1][1]})
        yield {"message_contents": blanked, SEEN: len(page)}
        rest(started)


# The index of the API's list, backwards.
_OLD = """
SELECT id, created_at, status FROM messaging_message
WHERE tenant_id = %s AND environment = %s AND (created_at, id) > (%s, %s) AND created_at < %s
ORDER BY created_at, id LIMIT %s
"""
Row = tuple[str, datetime, str]


def _pages(tenant_id: int, environment: str, since: datetime, before: datetime) -> Iterator[Sequence[Row]]:
    after: tuple[datetime, str] = (since, "")
    while page := _page([tenant_id, environment, *after, before, PAGE]):
        yield page
        after = (page[-1][1], page[-1][0])


def _page(values: list[Any]) -> Sequence[Row]:
    with connection.cursor() as cursor:
        cursor.execute(_OLD, values)
        return cursor.fetchall()


def _blank_page(ids: list[str]) -> int:
    settled = Message.objects.filter(pk__in=ids, lease_token=None).exclude(status__in=WAITING)
    return settled.exclude(content=BLANKED).update(content=BLANKED, variables={})


_PAGE_OF_WINDOWS = """
SELECT id, coalesce(greatest(received_at, refused_at, full_at) < %s, true) FROM messaging_window
WHERE id > %s ORDER BY id LIMIT %s
"""


def forget_windows(now: datetime) -> Batches:
    """Deletes what is on record of people who neither wrote nor were written to for long. Read in the order of ids."""
    before, after = cutoff("windows", now), 0
    while before and (page := sql.fetch(_PAGE_OF_WINDOWS, [before, after, PAGE])):
        started, after = time.monotonic(), page[-1][0]
        deleted, _by_model = Window.objects.filter(pk__in=[pk for pk, old in page if old]).delete()
        yield {"windows": deleted, SEEN: len(page)}
        rest(started)


STEPS = (
    Step("windows", forget_windows),
    pruned("comment_answers", CommentAnswer.objects.all),
    pruned("purges", lambda: Purge.objects.filter(finished_at__isnull=False), at="started_at"),
    pruned("received_messages", ReceivedMessage.objects.all),
    Step("message_contents", blank_contents),
    pruned("message_events", _told_events),
)
