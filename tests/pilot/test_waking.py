"""Wake-ups: one waiting token for each instance, and no trouble when Redis is away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from pilot import celery
from pilot.celery import app, broker_key, queue_for, redis, wake, wake_all

IDS = [900_001, 900_002]


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(celery, "_down_until", 0.0)
    keys = [broker_key(queue_for(key)) for key in IDS]
    redis().delete(*keys)
    yield
    redis().delete(*keys)


def waiting(instance_id: int) -> int:
    length: Any = redis().llen(broker_key(queue_for(instance_id)))
    return int(length)


def test_a_token_waits_in_the_instances_queue() -> None:
    wake(IDS[0])

    assert [waiting(key) for key in IDS] == [1, 0]


def test_a_second_wake_up_adds_no_token() -> None:
    for _ in range(3):
        wake(IDS[0])

    assert waiting(IDS[0]) == 1


def test_wakes_many_and_says_how_many_had_no_token() -> None:
    wake(IDS[0])

    assert wake_all(IDS) == 1
    assert [waiting(key) for key in IDS] == [1, 1]


def test_the_key_is_the_one_that_workers_read() -> None:
    """kombu's own name for the list, so that counting tokens counts the right ones."""
    with app.connection_for_read() as connection:
        channel: Any = connection.default_channel
        name = channel._q_for_pri(queue_for(IDS[0]), 0)

    assert broker_key(queue_for(IDS[0])) == f"{channel.global_keyprefix}{name}"


@pytest.fixture
def _no_redis(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[None]:
    settings.REDIS_URL = "redis://127.0.0.1:9/0"
    redis.cache_clear()
    yield
    redis.cache_clear()


@pytest.mark.usefixtures("_no_redis")
def test_does_not_raise_when_redis_is_away_and_leaves_it_alone_for_a_while() -> None:
    wake(IDS[0])
    started = time.monotonic()

    for _ in range(100):
        wake(IDS[0])

    assert time.monotonic() - started < 0.1


def test_waits_for_no_broker_that_refuses(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """kombu would try again for four seconds, in the middle of somebody's request."""
    settings.CELERY_BROKER_URL = "redis://127.0.0.1:9/0"
    celery._producers.cache_clear()
    started = time.monotonic()

    wake(IDS[0])

    celery._producers.cache_clear()
    assert time.monotonic() - started < 1
    assert waiting(IDS[0]) == 0
