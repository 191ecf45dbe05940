"""Wake-ups: one waiting token for each instance, and no trouble when Redis is away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from pilot import celery, queues
from pilot.celery import app, wake_all, wake_in_shards
from pilot.queues import broker_key, queue_for, shared_queue
from pilot.redis import client

IDS = [900_001, 900_002]  # of two shards


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No token waits, and a worker listens to own queues."""
    monkeypatch.setattr(celery, "_down_until", 0.0)
    forget()
    queues.say_own_are_heard(lasts=60)
    yield
    forget()


def forget() -> None:
    for shard in range(queues.SHARDS):
        queues.take(shard)
    names = [*map(queue_for, IDS), *queues.SHARED_QUEUES]
    client().delete(*map(broker_key, names))
    queues.say_own_are_left()


def waiting(instance_id: int) -> int:
    return length(queue_for(instance_id))


def length(queue: str) -> int:
    found: Any = client().llen(broker_key(queue))
    return int(found)


def test_a_token_waits_in_the_instances_queue() -> None:
    wake_all([IDS[0]])

    assert [waiting(key) for key in IDS] == [1, 0]


def test_a_second_wake_up_adds_no_token() -> None:
    for _ in range(3):
        wake_all([IDS[0]])

    assert waiting(IDS[0]) == 1


def test_wakes_many_and_says_how_many_had_no_token() -> None:
    wake_all([IDS[0]])

    assert wake_all(IDS) == 1
    assert [waiting(key) for key in IDS] == [1, 1]


@pytest.fixture
def _nobody_listens_to_own_queues() -> None:
    queues.say_own_are_left()


@pytest.mark.usefixtures("_nobody_listens_to_own_queues")
def test_uses_the_shared_queue_while_nobody_is_known_to_listen_to_the_own() -> None:
    wake_all([IDS[0]])

    assert (waiting(IDS[0]), length(shared_queue(queues.shard_for(IDS[0])))) == (0, 1)
    assert queues.waits(IDS[0])


@pytest.mark.usefixtures("_nobody_listens_to_own_queues")
def test_one_token_speaks_for_all_instances_of_a_shard() -> None:
    same_shard = [IDS[0], IDS[0] + queues.SHARDS]

    assert [wake_all([key]) for key in same_shard] == [1, 0]
    assert sorted(queues.take(queues.shard_for(IDS[0]))) == same_shard


def test_an_instance_that_is_woken_after_the_token_was_taken_gets_another() -> None:
    wake_in_shards(IDS)
    client().delete(
        *map(broker_key, queues.SHARED_QUEUES)
    )  # as a worker that takes it, and dies before it reads

    assert wake_in_shards(IDS) == 2


def test_the_pulse_is_heard_whatever_waits_in_an_own_queue() -> None:
    wake_all([IDS[0]])

    assert wake_in_shards([IDS[0]]) == 1


def test_a_note_lapses_so_that_everybody_shares_when_no_worker_renews_it() -> None:
    queues.say_own_are_heard(lasts=1)

    assert client().ttl(queues._OWN) == 1


def test_the_key_is_the_one_that_workers_read() -> None:
    """kombu's own name for the list, so that counting tokens counts the right ones."""
    with app.connection_for_read() as connection:
        channel: Any = connection.default_channel
        name = channel._q_for_pri(queue_for(IDS[0]), 0)

    assert broker_key(queue_for(IDS[0])) == f"{channel.global_keyprefix}{name}"


@pytest.mark.usefixtures("without_redis")
def test_does_not_raise_when_redis_is_away_and_leaves_it_alone_for_a_while() -> None:
    wake_all([IDS[0]])
    started = time.monotonic()

    for _ in range(100):
        wake_all([IDS[0]])

    assert time.monotonic() - started < 0.1


def test_waits_for_no_broker_that_refuses(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """kombu would try again for four seconds, in the middle of somebody's request."""
    settings.CELERY_BROKER_URL = "redis://127.0.0.1:9/0"
    celery._producers.cache_clear()
    started = time.monotonic()

    wake_all([IDS[0]])

    celery._producers.cache_clear()
    assert time.monotonic() - started < 1
    assert waiting(IDS[0]) == 0
