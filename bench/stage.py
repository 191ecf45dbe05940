"""Where measurements take place: empty servers for each run, and Pilot's processes as bin/run starts them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import django
import psycopg
from launcher import client, product
from launcher.console import Console
from launcher.errors import LauncherError, tail
from launcher.ports import free_port
from launcher.processes import POLL_INTERVAL, Process
from launcher.product import Addresses
from launcher.state import State
from redis import Redis

from bench import processor

START_SECONDS = 60.0


@dataclass(frozen=True)
class Stage:
    """The servers' addresses, and what the processes on them need."""

    state: State
    addresses: Addresses
    env: Mapping[str, str]
    console: Console

    @classmethod
    def ready(cls, env: Mapping[str, str], console: Console) -> Stage:
        """Make the tables. Django then works in this process, too."""
        redis_url = _open_to_all(env["REDIS_URL"])
        os.environ["REDIS_URL"] = redis_url
        for limit in ("API_KEY_RATE", "API_KEY_BURST", "API_TENANT_RATE", "API_TENANT_BURST"):
            os.environ.setdefault(limit, "1000000")  # counted, and never reached
        web_port = urlsplit(env["PUBLIC_URL"]).port or 0
        addresses = Addresses(env["DATABASE_URL"], redis_url, web_port, sandbox_port=free_port())
        stage = cls(State(Path(env["PILOT_TEST_ENGINES"]) / "bench"), addresses, dict(os.environ), console)
        django.setup()
        with console.timed("migrations", "applied"):
            _command("migrate")
        return stage

    @property
    def redis(self) -> Redis:
        """A client of the server that all processes use."""
        return Redis.from_url(self.addresses.redis_url)

    def redis_pid(self) -> int:
        """The process of the Redis server."""
        return int(self.redis.info("server")["process_id"])

    def postgres_pid(self) -> int:
        """The main process of the PostgreSQL server, whose children work for the clients."""
        with psycopg.connect(self.addresses.database_url) as connection:
            return processor.parent_of(connection.info.backend_pid)

    def clear(self) -> None:
        """Leave no row and no key."""
        _command("flush")
        self.redis.flushall()

    def database(self, name: str) -> str:
        """The URL of a database for another stack on the same server; made when missing."""
        url = self.addresses.database_url
        with psycopg.connect(url, autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
                connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
        return url.rpartition("/")[0] + f"/{name}"

    # --- processes

    @contextlib.contextmanager
    def running(self, *processes: Process) -> Iterator[None]:
        """Processes that run during the block."""
        with contextlib.ExitStack() as stack:
            for process in processes:
                stack.callback(process.stop)
                process.start()
            yield

    def web(self, workers: int) -> Process:
        """The web server with so many processes."""
        return self._like("web", **{"--workers": str(workers)})

    def worker(self, number: int) -> Process:
        """One of several workers."""
        return self._like("worker", **{"--name": f"worker{number}@bench"})

    def beat(self) -> Process:
        """The scheduler, without which nothing is woken a second time."""
        return self._like("beat")

    def _like(self, name: str, **changed: str) -> Process:
        """A process of the product with some of its options changed."""
        model = next(
            each for each in product.processes(self.state, self.addresses, self.env) if each.name == name
        )
        before = ["", *model.argv]
        argv = [changed.get(option, word) for option, word in zip(before, model.argv, strict=False)]
        return Process(name, argv, log=model.log, env=model.env, cwd=model.cwd, grace=model.grace)

    def wait_for_web(self, process: Process) -> None:
        """Wait until it answers."""
        port = self.addresses.web_port
        self.wait(lambda: client.call(port, "GET", "/livez") is not None, process, "to answer")

    def wait(
        self, done: Callable[[], bool], process: Process, what: str, seconds: float = START_SECONDS
    ) -> None:
        """Poll until `done`; LauncherError with the end of its log when the process ends or time runs out."""
        deadline = time.monotonic() + seconds
        while not done():
            if not process.alive() or time.monotonic() > deadline:
                raise LauncherError(
                    f"Waited in vain for {process.name} {what}. Its log:\n{tail(process.log, 20)}"
                )
            time.sleep(POLL_INTERVAL)


def _open_to_all(redis_url: str) -> str:
    """Take the password off: stacks that are compared may know none. The server is ours and listens locally."""
    Redis.from_url(redis_url).config_set("requirepass", "")
    parts = urlsplit(redis_url)
    return f"redis://{parts.hostname}:{parts.port}/0"


def _command(name: str) -> None:
    from django.core.management import call_command  # needs settings

    call_command(name, interactive=False, verbosity=0)
