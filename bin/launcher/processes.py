"""Child processes that stop as a group, die with the launcher, and are never mistaken for another's."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

POLL_INTERVAL = 0.02  # seconds
SERVICE_ACCOUNTS = ("postgres", "nobody")
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Account:
    """The user that root starts database servers as: initdb refuses root."""

    name: str
    uid: int
    gid: int


def service_account(directory: Path) -> Account | None:
    """Who must run a server whose data is in `directory`: None means whoever we are.

    Root takes the owner of data that is already there, else the first of postgres and nobody.
    """
    if os.geteuid() != 0:
        return None
    if directory.exists() and (owner := directory.stat().st_uid) != 0:
        return _account(pwd.getpwuid(owner))
    for name in SERVICE_ACCOUNTS:
        with contextlib.suppress(KeyError):
            return _account(pwd.getpwnam(name))
    raise LookupError("Neither the user postgres nor nobody exists, and PostgreSQL refuses to run as root.")


def _account(entry: pwd.struct_passwd) -> Account:
    return Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)


def can_reach(directory: Path, account: Account | None) -> bool:
    """Whether the account may enter a directory, parents included."""
    if account is None:
        return os.access(directory, os.X_OK)
    entered = subprocess.run(
        ["/bin/sh", "-c", 'cd "$1"', "sh", str(directory)],
        cwd="/",
        stderr=subprocess.DEVNULL,
        user=account.uid,
        group=account.gid,
        extra_groups=[],
        check=False,
    )
    return entered.returncode == 0


def fingerprint(pid: int) -> str | None:
    """What tells this process from any other that had or will have its pid; None when it is gone."""
    if sys.platform == "linux":
        return _linux_fingerprint(pid)
    shown = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return shown or None


def _linux_fingerprint(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name, in brackets, may hold spaces and brackets: fields are counted after the last one.
    fields = stat.rpartition(")")[2].split()
    state, started_ticks = fields[0], fields[19]
    if state in "ZX":
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{started_ticks}"


def die_with(parent: int, death_signal: int) -> None:
    """Ask Linux to signal this process when the thread that started it ends. Runs between fork and exec."""
    if _libc is None:
        return
    _libc.prctl(PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:
        os.kill(os.getpid(), death_signal)


class Process:
    """One child, in a session of its own, writing to one log file; may be started again after it ended."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str],
        cwd: Path,
        account: Account | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        death_signal: signal.Signals = signal.SIGKILL,
        grace: float = 10.0,
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = log
        self.env = dict(env)
        self.cwd = cwd
        self.account = account
        self.stop_signal = stop_signal
        self.death_signal = death_signal
        self.grace = grace
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The child's pid, which is also its process group; 0 before the first start."""
        return self._popen.pid if self._popen else 0

    @property
    def exit_code(self) -> int | None:
        """As in subprocess: negative for the signal that ended it, None while it runs or before it did."""
        self.alive()
        return self._popen.returncode if self._popen else None

    def alive(self) -> bool:
        """Whether it was started and has not ended; clears away what it left behind in its group."""
        if self._popen is None or self._popen.returncode is not None:
            return False
        if not _has_ended(self._popen):
            return True
        self.kill()
        return False

    def start(self) -> None:
        """Start it, or start it again; one that still runs is killed first."""
        self.kill()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.env,
                cwd=self.cwd,
                start_new_session=True,
                preexec_fn=functools.partial(die_with, os.getpid(), self.death_signal),
                user=self.account.uid if self.account else None,
                group=self.account.gid if self.account else None,
                extra_groups=[] if self.account else None,
            )

    def request_stop(self) -> None:
        """Ask it to end, without waiting."""
        if self.alive():
            os.kill(self.pid, self.stop_signal)

    def stop(self) -> None:
        """Ask it to end, wait `grace` seconds, then kill it with all that it started."""
        self.request_stop()
        began = time.monotonic()
        while self.alive() and time.monotonic() < began + self.grace:
            time.sleep(POLL_INTERVAL)
        self.kill()

    def hurry(self) -> None:
        """Let a stop() that is waiting wait no longer. May be called from a signal handler."""
        self.grace = 0.0

    def kill(self) -> None:
        """End it now, with all that it started."""
        if self._popen is None or self._popen.returncode is not None:
            return
        # Before it is reaped: a zombie keeps its pid, so the group cannot be a stranger's.
        os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return child.poll() is not None
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def stop_other(pid: int, known_fingerprint: str, stop_signal: int, grace: float) -> bool:
    """Stop a process that is not our child, if it still is the one we knew; tells whether it was.

    It gets `grace` seconds before SIGKILL.
    """
    if fingerprint(pid) != known_fingerprint:
        return False
    with contextlib.suppress(ProcessLookupError):  # it may end by itself meanwhile
        os.kill(pid, stop_signal)
        if not _gone_within(pid, known_fingerprint, grace):
            os.kill(pid, signal.SIGKILL)
            _gone_within(pid, known_fingerprint, grace)
    return True


def _gone_within(pid: int, known_fingerprint: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if fingerprint(pid) != known_fingerprint:
            return True
        time.sleep(POLL_INTERVAL)
    return False
