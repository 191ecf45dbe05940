"""Announcing: every event once in order, and readable again from the rows when the stream is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError

from messaging import announcing
from messaging.models import MessageEvent, Status
from messaging.status import Move, move
from pilot import outbox
from pilot.redis import client
from tests.factories import NOW, make_message

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def stream() -> Iterator[Redis]:
    redis = client()
    redis.delete(announcing.STREAM)
    yield redis
    redis.delete(announcing.STREAM)


def announced(client: Redis) -> list[dict[str, Any]]:
    return [json.loads(fields[b"payload"]) for _id, fields in client.xrange(announcing.STREAM)]  # type: ignore[union-attr]


def test_announces_each_change_once_in_order(stream: Redis) -> None:
    message = make_message(status=Status.SENDING)
    move(
        Move(message_id=message.pk, to=Status.SUBMITTED, at=NOW, provider_message_id="3EB0"),
        Move(message_id=message.pk, to=Status.READ, at=NOW),
    )

    counts = [announcing.relay(), announcing.relay()]

    entries = announced(stream)
    assert counts == [2, 0]
    assert [entry["position"] for entry in entries] == [1, 2]
    assert [(entry["kind"], entry["status"]) for entry in entries] == [
        ("submitted", "sent"),
        ("read", "read"),
    ]
    assert {entry["internalId"] for entry in entries} == {message.pk}
    assert entries[0]["wamid"] == "3EB0"


def test_late_news_is_kept_but_not_announced(stream: Redis) -> None:
    message = make_message(status=Status.READ)
    move(Move(message_id=message.pk, to=Status.SENT, at=NOW))

    assert announcing.relay() == 0
    assert MessageEvent.objects.get(message=message).position is None


def test_redis_may_be_away_and_nothing_is_left_out(stream: Redis) -> None:
    message = make_message(status=Status.SENDING)
    move(Move(message_id=message.pk, to=Status.SUBMITTED, at=NOW))
    away = Redis(port=9, socket_connect_timeout=0.2)
    outbox.number(MessageEvent)

    with pytest.raises(RedisError):
        outbox.announce(
            MessageEvent.objects.all(),
            stream=announcing.STREAM,
            redis=away,
            encode=lambda events: [{} for _ in events],
        )

    assert announcing.relay() == 1


def test_a_reader_finds_in_the_rows_what_a_flushed_stream_lost(stream: Redis) -> None:
    message = make_message(status=Status.SENDING)
    move(Move(message_id=message.pk, to=Status.SUBMITTED, at=NOW))
    announcing.relay()
    stream.flushdb()
    move(Move(message_id=message.pk, to=Status.READ, at=NOW))
    announcing.relay()

    assert [entry["position"] for entry in announced(stream)] == [2]
    missed = MessageEvent.objects.filter(position__gt=0, position__lt=2)
    assert [event.kind for event in missed] == ["submitted"]


def test_numbers_more_than_a_batch(stream: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "BATCH", 3)
    message = make_message(status=Status.QUEUED)
    MessageEvent.objects.bulk_create(
        MessageEvent(message=message, tenant=message.tenant, kind="held", at=NOW) for _ in range(7)
    )

    counts = [announcing.relay() for _ in range(4)]

    assert counts == [3, 3, 1, 0]
    assert list(MessageEvent.objects.order_by("id").values_list("position", flat=True)) == list(range(1, 8))
