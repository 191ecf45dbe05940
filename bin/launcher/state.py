"""What bin/run keeps between starts: the servers' data, secrets, ports, logs, who is running."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from launcher import paths
from launcher.errors import LauncherError
from launcher.files import read_json, write_json
from launcher.ports import PortBook
from launcher.processes import can_reach, service_account


def encryption_key() -> str:
    """A new Fernet key: 32 random bytes in URL-safe base64."""
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


SECRETS: dict[str, Callable[[], str]] = {
    "SECRET_KEY": lambda: secrets.token_urlsafe(50),
    "ENCRYPTION_KEYS": encryption_key,
    "EVOLUTION_API_KEY": lambda: secrets.token_hex(24),
    "POSTGRES_PASSWORD": lambda: secrets.token_urlsafe(18),
    "VALKEY_PASSWORD": lambda: secrets.token_urlsafe(18),
}


class State:
    """One directory, `.pilot` in the checkout wherever that can be used."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.logs = root / "logs"
        root.mkdir(parents=True, exist_ok=True)
        # Root's database servers run under another account, which must get through.
        root.chmod(0o711 if os.geteuid() == 0 else 0o700)
        self.logs.mkdir(exist_ok=True)
        self.logs.chmod(0o700)  # the demo's login is in there
        self.ports = PortBook(root / "ports.json")

    @classmethod
    def of_checkout(cls) -> State:
        """The state of this checkout; outside it when root's database servers could not enter it there."""
        root = paths.home() / ".pilot"
        if can_reach(paths.home(), service_account(root / "postgres")):
            return cls(root)
        return cls(paths.service_home() / "state")

    def log(self, name: str) -> Path:
        """Where a part writes its log."""
        return self.logs / f"{name}.log"

    def empty(self, name: str) -> Path:
        """A directory for what is of this run only, without what the last one left."""
        directory = self.root / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        return directory

    def rotate_logs(self) -> None:
        """Set the last run's logs aside, one generation."""
        for log in self.logs.glob("*.log"):
            log.replace(log.with_suffix(".log.1"))

    def secrets(self) -> dict[str, str]:
        """The generated secrets by name; missing ones are made and kept, readable by the owner only."""
        file = self.root / "env.json"
        known: dict[str, str] = read_json(file)
        missing = {name: make() for name, make in SECRETS.items() if name not in known}
        if missing:
            write_json(file, known | missing)
        return known | missing

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Hold this state for one run. Raises LauncherError when another run has it."""
        with (self.root / "run.lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LauncherError(self._already_running(lock.name)) from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def _already_running(self, lock: str) -> str:
        pid = Path(lock).read_text()
        return f"Pilot already runs from this clone (pid {pid}). Stop it with Ctrl-C in its terminal first."

    def throw_away(self) -> None:
        """Delete everything but the lock and the ports: data, secrets, logs."""
        for entry in self.root.iterdir():
            if entry.name in ("run.lock", "ports.json"):
                continue
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


@contextlib.contextmanager
def exclusive(path: Path, *, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a lock file during the block; calls `waiting` once when another process has it."""
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
