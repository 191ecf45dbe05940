"""Django's cache on the Redis that REDIS_URL names. While Redis is away the cache is empty and forgets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from django.core.cache.backends.redis import RedisCache, RedisCacheClient
from redis import Redis
from redis.exceptions import RedisError

from pilot.redis import client

log = structlog.get_logger(__name__)


class _Client(RedisCacheClient):
    """Every question goes to the primary, through the client that all of Pilot shares."""

    def get_client(self, key: Any = None, *, write: bool = False) -> Redis:
        return client()

    def add(self, key: Any, value: Any, timeout: Any) -> bool:
        return _else(True, super().add, key, value, timeout)

    def get(self, key: Any, default: Any) -> Any:
        return _else(default, super().get, key, default)

    def set(self, key: Any, value: Any, timeout: Any) -> None:
        _else(None, super().set, key, value, timeout)

    def touch(self, key: Any, timeout: Any) -> bool:
        return _else(False, super().touch, key, timeout)

    def delete(self, key: Any) -> bool:
        return _else(False, super().delete, key)

    def get_many(self, keys: Any) -> dict[Any, Any]:
        return _else({}, super().get_many, keys)

    def has_key(self, key: Any) -> bool:
        return _else(False, super().has_key, key)

    def set_many(self, data: Any, timeout: Any) -> None:
        _else(None, super().set_many, data, timeout)

    def delete_many(self, keys: Any) -> None:
        _else(None, super().delete_many, keys)


class Cache(RedisCache):
    """For what may be forgotten at any time: limits on attempts, nothing that a message depends on."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._class = _Client


def _else(answer: Any, ask: Callable[..., Any], *args: Any) -> Any:
    """What Redis says; `answer`, as of an empty cache, while it is away. A page must not fail for its cache."""
    try:
        return ask(*args)
    except RedisError as error:
        log.warning("cache.away", error=str(error))
        return answer
