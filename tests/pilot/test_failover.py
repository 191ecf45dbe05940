"""Cache, channel layer and clients find the new primary by themselves."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from channels_redis.pubsub import RedisPubSubChannelLayer
from django.core.cache import cache
from redis import Redis
from redis.exceptions import RedisError

from pilot.redis import address, client, connect
from tests.sandbox.emulator import eventually
from tests.sentinels import Sentinels

FAILOVER = 15.0  # seconds; it takes about three


@pytest.fixture
def sentinels(settings: Any) -> Iterator[Sentinels]:
    directory = Path(tempfile.mkdtemp(dir=os.environ.get("PILOT_TEST_ENGINES")))
    directory.chmod(0o755)
    sentinels = Sentinels(directory)
    try:
        sentinels.start()
        settings.REDIS_URL = sentinels.url
        client.cache_clear()
        yield sentinels
        close(client())
    finally:
        client.cache_clear()
        sentinels.stop()


def close(redis: Redis) -> None:
    """With its connections to the sentinels, which it forgets by itself."""
    redis.connection_pool.sentinel_manager.close()
    redis.close()


def test_cache_channels_and_clients_follow_a_failover(sentinels: Sentinels) -> None:
    patient = connect(timeout=5)
    assert writes(patient)
    cache.set("seen", "before")

    asyncio.run(hears_before_and_after(sentinels))

    eventually(lambda: writes(patient), within=FAILOVER)
    eventually(lambda: remembers("after"), within=FAILOVER)
    assert patient.connection_pool.master_address[1] == sentinels.replica.port
    close(patient)


async def hears_before_and_after(sentinels: Sentinels) -> None:
    async with listener(sentinels) as (layer, channel):
        assert await hears(layer, channel, "before")
        await asyncio.to_thread(sentinels.primary.kill)
        assert cache.get("seen", "nothing") == "nothing"  # away, and no error
        assert await hears(layer, channel, "after")


@asynccontextmanager
async def listener(sentinels: Sentinels) -> AsyncIterator[tuple[RedisPubSubChannelLayer, str]]:
    """A layer as it is configured, with a channel in the group "desk"."""
    layer = RedisPubSubChannelLayer(hosts=[address(sentinels.url).channel_host])
    channel = await layer.new_channel()
    await layer.group_add("desk", channel)
    yield layer, channel
    for shard in layer._shards:  # flush() forgets its connections to the sentinels
        for sentinel in shard._redis.connection_pool.sentinel_manager.sentinels:
            await sentinel.aclose()
    await layer.flush()


async def hears(layer: RedisPubSubChannelLayer, channel: str, word: str) -> bool:
    """Says the word until it is heard: what is said during a failover is lost."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + FAILOVER
    heard = asyncio.ensure_future(layer.receive(channel))
    while loop.time() < deadline:
        with suppress(RedisError):
            await layer.group_send("desk", {"type": "said", "word": word})
        done, _waiting = await asyncio.wait([heard], timeout=0.2)
        if done and heard.result()["word"] == word:
            return True
        if done:
            heard = asyncio.ensure_future(layer.receive(channel))
    return False


def writes(redis: Redis) -> bool:
    try:
        return bool(redis.xadd("probe", {"payload": "{}"}))
    except RedisError:
        return False


def remembers(word: str) -> bool:
    cache.set("seen", word)
    return cache.get("seen") == word
