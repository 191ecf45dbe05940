"""Servers and an environment that exist for one command only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from launcher import product
from launcher.engines import Engine, Postgres, Valkey
from launcher.errors import LauncherError
from launcher.ports import free_port
from launcher.processes import can_reach, service_account
from launcher.product import Addresses
from launcher.state import SECRETS

PREFIX = "pilot-test-"
ABSENT = ("EVOLUTION_URL", "EVOLUTION_API_KEY", "SANDBOX_API_KEY")  # a real server's, in the caller's shell
ABANDONED_AFTER = 60.0  # seconds; younger directories may be about to be locked


@contextlib.contextmanager
def environment(*, durable: bool = False) -> Iterator[dict[str, str]]:
    """The product's environment with servers and secrets that vanish after the block.

    `durable` servers write every commit to disk, as in production; the others are faster.
    PILOT_TEST_ENGINES in it is a directory for the data of servers that tests start themselves.
    """
    secrets = {name: make() for name, make in SECRETS.items()}
    with workspace() as directory, _servers(directory, durable=durable) as addresses:
        own_servers = directory / "engines"
        own_servers.mkdir()
        own_servers.chmod(0o755)
        env = product.environment(addresses, secrets) | {"PILOT_TEST_ENGINES": str(own_servers)}
        yield {name: value for name, value in env.items() if name not in ABSENT}


@contextlib.contextmanager
def workspace() -> Iterator[Path]:
    """A directory that the database servers' account can enter, deleted afterwards.

    A run that was killed leaves its directory behind, no longer locked: the next run deletes it.
    """
    base = _reachable_temporary()
    _sweep(base)
    directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    directory.chmod(0o755)
    try:
        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _reachable_temporary() -> Path:
    for base in (Path(tempfile.gettempdir()), Path("/var/tmp")):
        if can_reach(base, service_account(base / "none")):
            return base
    raise LauncherError(f"{tempfile.gettempdir()} is closed to the database servers' account; set TMPDIR.")


def _sweep(base: Path) -> None:
    for directory in base.glob(f"{PREFIX}*"):
        found = directory.lstat()
        if found.st_uid == os.geteuid() and time.time() - found.st_mtime > ABANDONED_AFTER:
            _remove_unlocked(directory)


def _remove_unlocked(directory: Path) -> None:
    with contextlib.suppress(BlockingIOError), (directory / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory)


@contextlib.contextmanager
def _servers(directory: Path, *, durable: bool) -> Iterator[Addresses]:
    """Throw-away PostgreSQL and Valkey, for which the environment has no address, during the block."""
    wanted: list[Engine] = []
    if "DATABASE_URL" not in os.environ:
        wanted.append(Postgres(directory / "postgres", fsync=durable))
    if "REDIS_URL" not in os.environ:
        wanted.append(Valkey(directory / "valkey", appendonly=durable))
    with contextlib.ExitStack() as stack:
        for engine in wanted:
            stack.callback(engine.stop)
            engine.start()
        yield Addresses(
            database_url=product.url_of("DATABASE_URL", Postgres, wanted),
            redis_url=product.url_of("REDIS_URL", Valkey, wanted),
            web_port=free_port(),
            sandbox_port=free_port(),
        )
