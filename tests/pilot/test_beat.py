"""Two beats, real processes: one leads, the other goes on where it stopped, and no entry runs twice for it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from launcher import paths
from launcher.processes import Process
from redis import Redis

from pilot import locks
from pilot.beat import HANGS_SECONDS, LOST_LEAD
from pilot.celery import app
from pilot.models import BeatRun
from pilot.queues import broker_key
from tests.product.running import environment, forgetful
from tests.sandbox.emulator import eventually

PULSE = "messaging.pulse"


class Listener:
    """Takes every token that beat sends, and remembers when it came."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._heard: list[tuple[float, str]] = []
        self._redis = Redis.from_url(url, socket_timeout=None)
        self._queues = {broker_key(entry["options"]["queue"]) for entry in app.conf.beat_schedule.values()}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._redis.close()

    def times(self, task: str) -> list[float]:
        return [at for at, name in list(self._heard) if name == task]

    def silent_for(self) -> float:
        return time.monotonic() - max(at for at, _name in list(self._heard))

    def _listen(self) -> None:
        while not self._stopping.is_set():
            found: Any = self._redis.brpop(list(self._queues), timeout=0.2)
            if found:
                self._heard.append((time.monotonic(), json.loads(found[1])["headers"]["task"]))


@pytest.fixture
def directory() -> Path:
    directory = Path(tempfile.mkdtemp(dir=os.environ.get("PILOT_TEST_ENGINES")))
    directory.chmod(0o755)
    return directory


@pytest.fixture
def listener(directory: Path) -> Iterator[Listener]:
    valkey = forgetful(directory)
    valkey.start()
    listener = Listener(valkey.url)
    yield listener
    listener.close()
    valkey.stop()


@pytest.fixture
def beats(transactional_db: None, directory: Path, listener: Listener) -> Iterator[list[Process]]:
    """Two of them, of which the first leads. One entry of the table is long overdue."""
    now = timezone.now()
    runs = dict.fromkeys(app.conf.beat_schedule, now) | {"keep-hooks": now - timedelta(days=1)}
    BeatRun.objects.bulk_create(BeatRun(name=name, ran_at=at) for name, at in runs.items())
    beats = [_beat(name, directory, listener) for name in ("first", "second")]
    try:
        beats[0].start()
        eventually(lambda: listener.times(PULSE), within=30)
        stands_by(beats[1])
        yield beats
    finally:
        for beat in beats:
            beat.kill()


def _beat(name: str, directory: Path, listener: Listener) -> Process:
    command = [paths.python(), "-m", "celery", "-A", "pilot", "beat", "-l", "INFO"]
    env = environment() | {"REDIS_URL": listener.url}
    return Process(name, command, log=directory / f"{name}.log", env=env, cwd=paths.REPO)


def stands_by(beat: Process) -> None:
    """Starts it and waits until it waits."""
    beat.log.unlink(missing_ok=True)
    beat.start()
    eventually(lambda: "beat.stands_by" in beat.log.read_text(), within=30)


def cut() -> None:
    """Ends the session that holds the lead, as a lost connection would."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks"
            " WHERE locktype = 'advisory' AND objid = %s AND granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            [locks.BEAT],
        )


def next_pulse(listener: Listener) -> float:
    """Seconds until the next pulse from now."""
    before = time.monotonic()
    eventually(lambda: listener.times(PULSE)[-1] > before, within=20)
    return listener.times(PULSE)[-1] - before


def test_the_other_goes_on_whatever_becomes_of_the_leader(listener: Listener, beats: list[Process]) -> None:
    first, second = beats

    first.kill()
    assert next_pulse(listener) < 6

    stands_by(first)
    cut()
    assert next_pulse(listener) < 6
    eventually(lambda: second.exit_code == LOST_LEAD)

    stands_by(second)
    eventually(lambda: 0.3 < listener.silent_for() < 0.6)  # not between writing a run down and asking for it
    os.kill(first.pid, signal.SIGSTOP)
    assert next_pulse(listener) < HANGS_SECONDS + 4

    os.kill(first.pid, signal.SIGCONT)
    eventually(lambda: first.exit_code == LOST_LEAD)
    next_pulse(listener)

    stands_by(first)
    first.request_stop()
    eventually(lambda: first.exit_code == 0)

    assert_nothing_ran_twice(listener)


def assert_nothing_ran_twice(listener: Listener) -> None:
    periods = {entry["task"]: entry["schedule"] for entry in app.conf.beat_schedule.values()}
    gaps = {task: _gaps(listener.times(task)) for task in periods}
    assert len(listener.times("instances.keep_hooks")) == 1  # overdue: once, and once only
    for task, period in periods.items():
        assert all(gap > period - 0.9 for gap in gaps[task]), task


def _gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]
