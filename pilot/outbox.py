"""The event row: history and outbox at once. What happened is written with the change itself, announced later.

The relay numbers events in the order in which it announces them and adds them to a stream. An entry is a hint with
the data attached: a reader keeps the position it has reached in the database, and reads the rows after it when the
stream has a hole or is gone. Announcing twice is harmless, because the position is part of the entry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from django.db import connection, models, transaction
from redis import Redis

from pilot.models import StreamPlace

BATCH = 500
# An emergency fence, far above any backlog; readers that fall behind it read rows.
LONGEST_STREAM = 1_000_000

Row = TypeVar("Row", bound="EventRow")


class EventRow(models.Model):
    """One fact about one subject. `position` is its number in the order of announcement.

    `numbered_if` is the SQL condition that a row must meet to be given one; the index of rows without one has it too.
    """

    numbered_if: ClassVar[str] = "true"

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=32)
    detail = models.JSONField(default=dict)
    at = models.DateTimeField()
    position = models.BigIntegerField(null=True, editable=False)

    class Meta:
        abstract = True


def number(model: type[EventRow]) -> int:
    """Gives the next positions to at most 500 events that have none. Returns how many. One relay at a time."""
    table = connection.ops.quote_name(model._meta.db_table)
    with transaction.atomic(), connection.cursor() as cursor:
        place = locked_place(_numbered_name(model))
        cursor.execute(
            f"UPDATE {table} e SET position = %s + fresh.rank FROM ("
            f"  SELECT id, row_number() OVER (ORDER BY id) AS rank FROM ("
            f"    SELECT id FROM {table} WHERE position IS NULL AND {model.numbered_if} ORDER BY id LIMIT %s) AS oldest"
            f") AS fresh WHERE e.id = fresh.id",
            [place.position, BATCH],
        )
        numbered = cursor.rowcount
        StreamPlace.objects.filter(pk=place.pk).update(position=place.position + numbered)
    return numbered


def numbered(model: type[EventRow]) -> int:
    """The highest position that was given: every event up to it can be read."""
    place = StreamPlace.objects.filter(pk=_numbered_name(model)).values_list("position", flat=True)
    return place.first() or 0


def read_by_all(model: type[EventRow]) -> int:
    """The position up to which every reader has got. A reader's place is called `<model's label>.<reader>`."""
    places = StreamPlace.objects.filter(pk__startswith=f"{model._meta.label_lower}.")
    return places.aggregate(models.Min("position"))["position__min"] or 0


def announce(
    events: models.QuerySet[Row],
    *,
    stream: str,
    redis: Redis,
    encode: Callable[[Sequence[Row]], Sequence[Mapping[str, Any]]],
) -> int:
    """Adds at most 500 numbered events to `stream`, in order, and remembers how far it got. Returns how many.

    Raises redis.RedisError and changes nothing when Redis is away.
    """
    name = f"{events.model._meta.label_lower}.announced"
    place, _created = StreamPlace.objects.get_or_create(pk=name)
    batch = list(events.filter(position__gt=place.position).order_by("position")[:BATCH])
    if not batch:
        return 0
    pipeline = redis.pipeline(transaction=False)
    for payload in encode(batch):
        fields: dict[Any, Any] = {"payload": json.dumps(payload)}
        pipeline.xadd(stream, fields, maxlen=LONGEST_STREAM, approximate=True)
    pipeline.execute()
    StreamPlace.objects.filter(pk=name).update(position=batch[-1].position)
    return len(batch)


def _numbered_name(model: type[EventRow]) -> str:
    return f"{model._meta.label_lower}.numbered"


def locked_place(name: str) -> StreamPlace:
    """The place of a reader, for nobody else until the transaction ends."""
    StreamPlace.objects.get_or_create(pk=name)
    return StreamPlace.objects.select_for_update().get(pk=name)
