"""Whether a worker still hears: one that lives and takes nothing is worse than one that ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import structlog
from django.conf import settings
from redis.exceptions import RedisError

from pilot.redis import client

log = structlog.get_logger(__name__)

LOOKS_UNTIL_DEAF = 6


class Hearing:
    """Ends a worker that takes nothing for WORKER_DEAF, although Redis answers.

    After a broker crash, or a connection that died without a word, a worker may live on and be deaf. Time is counted in
    looks, so that a process which was frozen, or had no Redis, has all of it again.
    """

    def __init__(self, *, end: Callable[[], None]) -> None:
        self._end = end
        self._heard = threading.Event()
        self._stopping = threading.Event()
        self._silent_looks = 0

    def start(self, **_kwargs: Any) -> None:
        threading.Thread(target=self._watch, name="hearing", daemon=True).start()

    def stop(self, **_kwargs: Any) -> None:
        self._stopping.set()

    def note(self, **_kwargs: Any) -> None:
        """A token was taken."""
        self._heard.set()

    def look(self) -> None:
        if self._heard.is_set() or not _redis_answers():
            self._silent_looks = 0
        else:
            self._silent_looks += 1
        self._heard.clear()
        if self._silent_looks == LOOKS_UNTIL_DEAF:
            log.critical("worker.deaf", seconds=settings.WORKER_DEAF.total_seconds())
            self._end()

    def _watch(self) -> None:
        while not self._stopping.wait(settings.WORKER_DEAF.total_seconds() / LOOKS_UNTIL_DEAF):
            self.look()


def _redis_answers() -> bool:
    try:
        return bool(client().ping())
    except RedisError:
        return False
