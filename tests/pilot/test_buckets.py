"""Token buckets: what is granted, by Redis, by this process alone, and by many processes together."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest
from django.conf import settings as django_settings
from redis.exceptions import ConnectionError

from pilot.buckets import Bucket, Buckets, Demand, Drawn, OwnCount
from tests.sandbox.emulator import eventually

WAYS: dict[str, Callable[[], Any]] = {"by Redis": Buckets, "by the process": OwnCount}


@pytest.fixture(autouse=True)
def _patient(settings: Any) -> None:
    settings.RATE_LIMIT_WAIT = timedelta(seconds=5)


def slow(burst: int = 50, policy: str = "key") -> Bucket:
    """A bucket of its own, which gets no token while a test runs."""
    return Bucket(policy, f"test:{uuid4()}", rate=0.001, burst=burst)


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def buckets(request: pytest.FixtureRequest) -> Any:
    return request.param()


def granted(buckets: Any, *demands: Demand) -> list[int]:
    return [drawn.granted for drawn in buckets.draw(demands)]


def test_grants_as_many_as_there_are(buckets: Any) -> None:
    bucket = slow(50)
    assert granted(buckets, Demand((bucket,), 30), Demand((bucket,), 30), Demand((bucket,))) == [30, 20, 0]


def test_grants_one_by_one_exactly_the_burst(buckets: Any) -> None:
    bucket = slow(50)
    assert sum(granted(buckets, Demand((bucket,)))[0] for _ in range(300)) == 50


def test_fills_up_again(buckets: Any) -> None:
    bucket = Bucket("key", f"test:{uuid4()}", rate=1000, burst=2)
    assert granted(buckets, Demand((bucket,), 5)) == [2]
    eventually(lambda: granted(buckets, Demand((bucket,), 5)) == [2], within=5)


def test_takes_from_all_buckets_or_none(buckets: Any) -> None:
    """Two keys of a tenant: the tenant's bucket bounds them, and what it refuses is not taken from the key's."""
    first, second, shared = slow(10), slow(10), slow(12, "tenant")
    demands = [Demand((first, shared), 10), Demand((second, shared), 10)]
    assert granted(buckets, *demands) == [10, 2]
    drawn: Drawn = buckets.draw([Demand((second, shared))])[0]
    assert drawn.headers["RateLimit"].startswith('"key";r=8;')
    assert 900 < drawn.wait() <= 1000


def test_says_what_is_left(buckets: Any) -> None:
    drawn: Drawn = buckets.draw([Demand((Bucket("key", f"test:{uuid4()}", 100, 200), slow(5, "tenant")), 2)])[
        0
    ]
    assert drawn.headers == {
        "RateLimit-Policy": '"key";q=200;w=2, "tenant";q=5;w=5000',
        "RateLimit": '"key";r=198;t=1, "tenant";r=3;t=2000',
    }
    assert drawn.wait() == 0


def test_draws_nothing_for_nobody(buckets: Any) -> None:
    assert buckets.draw([]) == []


def test_counts_alone_while_redis_is_away(without_redis: None, settings: Any) -> None:
    buckets, bucket = Buckets(), slow(50)
    asked: list[float] = []
    settings.RATE_LIMIT_WAIT = timedelta(milliseconds=50)
    for _ in range(60):
        started = time.monotonic()
        asked.append(granted(buckets, Demand((bucket,)))[0])
        assert time.monotonic() - started < 1  # ~50 ms at most, on a machine that has nothing else to do
    assert sum(asked) == 50


def test_waits_for_a_silent_redis_once(settings: Any) -> None:
    """Somebody accepts connections and never answers: the first request waits, the next ones do not ask."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        settings.REDIS_URL = f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        settings.RATE_LIMIT_WAIT = timedelta(milliseconds=50)
        buckets, bucket = Buckets(), slow(50)
        started = time.monotonic()
        assert granted(buckets, *[Demand((bucket,))] * 3) == [1, 1, 1]
        first = time.monotonic() - started
        started = time.monotonic()
        for _ in range(20):
            granted(buckets, Demand((bucket,)))
        rest = time.monotonic() - started
    assert 0.04 < first < 1
    assert rest < 0.04 * 20


def test_asks_redis_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    buckets, bucket = Buckets(), slow(50)
    with monkeypatch.context() as away:
        away.setattr("pilot.buckets.DOWN_SECONDS", 0.0)
        away.setattr(buckets, "_shared", Mock(side_effect=ConnectionError))
        assert granted(buckets, Demand((bucket,), 50)) == [50]
    assert granted(buckets, Demand((bucket,), 5)) == [5]
    assert granted(Buckets(), Demand((bucket,), 50)) == [45]


def test_lets_one_caller_find_out_whether_redis_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    buckets, bucket = Buckets(), slow(50)
    asked: list[list[int]] = []

    def away(_demands: Any) -> Any:
        asked.append(granted(buckets, Demand((bucket,), 3)))  # another request, meanwhile
        raise ConnectionError

    monkeypatch.setattr(buckets, "_shared", away)
    buckets._down_until = time.monotonic() - 1
    assert granted(buckets, Demand((bucket,), 1)) == [1]
    assert asked == [[3]]


ASK = """
import sys, django
django.setup()
from pilot.buckets import Bucket, Buckets, Demand
bucket = Bucket("key", sys.argv[1], rate=0.001, burst=50)
buckets = Buckets()
sys.stdin.readline()
print(sum(buckets.draw([Demand((bucket,))])[0].granted for _ in range(150)))
"""


def test_is_one_bucket_for_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 requests by two processes at once."""
    for name, value in {"DJANGO_SETTINGS_MODULE": "pilot.settings", "RATE_LIMIT_WAIT_MS": "1000"}.items():
        monkeypatch.setenv(name, value)
    bucket = slow(50)
    askers = [
        subprocess.Popen(
            [sys.executable, "-c", ASK, bucket.name],
            cwd=django_settings.BASE_DIR,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for asker in askers:
        asker.stdin.write("go\n")
        asker.stdin.flush()
    totals = [int(asker.communicate(timeout=60)[0]) for asker in askers]
    assert sum(totals) == 50
