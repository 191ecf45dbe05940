"""The queues of instances: one of its own for each, or 64 that they share when there are many.

The cost of a token grows with the number of queues that a worker listens to (docs/performance.md), so own queues are
for up to about a thousand open instances. Switching needs no agreement. **Every worker always listens to the shared
queues**; own ones are used only while a note in Redis says that a worker listens to them. The note lapses, and whoever
does not find it shares: after FLUSHALL, after a failover, and before any worker runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings

from pilot.redis import client

SHARDS = 64
_OWN = "pilot:own-queues"
_CHANGES = "pilot:queue-changes"


def queue_for(instance_id: int) -> str:
    """The name of an instance's own queue."""
    return f"instance.{instance_id}"


def shard_for(instance_id: int) -> int:
    """Which of the shared queues carries an instance's wake-ups."""
    return instance_id % SHARDS


def shared_queue(shard: int) -> str:
    return f"instances.{shard}"


SHARED_QUEUES = frozenset(shared_queue(shard) for shard in range(SHARDS))


def broker_key(queue: str) -> str:
    """The Redis list that holds a queue's tokens (kombu: key prefix + name, no suffix with one priority step)."""
    return f"{settings.CELERY_BROKER_TRANSPORT_OPTIONS['global_keyprefix']}{queue}"


def without_token(instance_ids: Iterable[int]) -> list[int] | None:
    """Those of which no token waits in their own queue; None when nobody is known to listen to own queues."""
    ids = list(instance_ids)
    pipeline = client().pipeline(transaction=False)
    pipeline.exists(_OWN)
    for instance_id in ids:
        pipeline.llen(broker_key(queue_for(instance_id)))
    heard, *lengths = pipeline.execute()
    return [key for key, length in zip(ids, lengths, strict=True) if not length] if heard else None


def put(instance_ids: Iterable[int]) -> list[int]:
    """Adds instances to the sets that tokens in the shared queues speak of. Returns the shards that need a token.

    First the set, then the look at the queue: a worker takes the token first and the set after it, so either it finds
    the instance or we find no token.
    """
    shards = _by_shard(instance_ids)
    pipeline = client().pipeline(transaction=False)
    for shard, members in shards.items():
        pipeline.sadd(_waiting(shard), *members)
        pipeline.llen(broker_key(shared_queue(shard)))
    lengths = pipeline.execute()[1::2]
    return [shard for shard, length in zip(shards, lengths, strict=True) if not length]


def take(shard: int) -> list[int]:
    """Removes and returns the instances that wait in a shard. For whoever has its token."""
    members: Any = client().spop(_waiting(shard), 1_000_000)
    return [int(member) for member in members]


def waits(instance_id: int) -> bool:
    """Whether an instance waits in its shard."""
    return bool(client().sismember(_waiting(shard_for(instance_id)), str(instance_id)))


def own_are_heard() -> bool:
    """Whether a worker said lately that it listens to the instances' own queues."""
    return bool(client().exists(_OWN))


def say_own_are_heard(*, lasts: float) -> None:
    """For a worker that listens to them, and will for `lasts` seconds at least."""
    client().set(_OWN, "1", ex=max(1, round(lasts)))


def say_own_are_left() -> None:
    """For a worker that will soon listen to them no more. From now on everybody shares."""
    client().delete(_OWN)


def count_change() -> None:
    """Says that an instance opened or closed."""
    client().incr(_CHANGES)


def changes() -> int:
    """A number that is another after each change, and after Redis lost it."""
    count: Any = client().get(_CHANGES)
    return int(count or 0)


def _waiting(shard: int) -> str:
    return f"pilot:waiting.{shard}"


def _by_shard(instance_ids: Iterable[int]) -> Mapping[int, list[int]]:
    shards: dict[int, list[int]] = defaultdict(list)
    for instance_id in instance_ids:
        shards[shard_for(instance_id)].append(instance_id)
    return shards
