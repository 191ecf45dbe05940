"""Child processes: they end with their group, with their launcher, and are never mistaken for others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launcher.processes import Process, fingerprint, stop_other

from tests.launcher.conftest import wait_until

IDLE = "import time; time.sleep(60)"
PARENT = (
    "import subprocess, sys, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"
)
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
LAUNCHER = """
import os, sys, time
from pathlib import Path
from launcher.processes import Process
child = Process("child", ["sleep", "60"], log=Path(sys.argv[1]), env=os.environ, cwd=Path("/"))
child.start()
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts a Python program as a Process; killed after the test."""
    started: list[Process] = []

    def start(program: str, *, grace: float = 10.0) -> Process:
        log = tmp_path / f"{len(started)}.log"
        argv = [sys.executable, "-c", program]
        started.append(Process("child", argv, log=log, env=os.environ, cwd=tmp_path, grace=grace))
        started[-1].start()
        return started[-1]

    yield start
    for process in started:
        process.kill()


def test_stops_what_the_child_started_too(start: Callable[..., Process]) -> None:
    parent = start(PARENT)
    wait_until(lambda: parent.log.read_text().endswith("\n"), "the grandchild's pid")
    grandchild = int(parent.log.read_text())

    parent.stop()

    assert parent.exit_code == -signal.SIGTERM
    wait_until(lambda: fingerprint(grandchild) is None, "the grandchild to be gone")


def test_clears_away_what_a_crashed_child_left_behind(start: Callable[..., Process]) -> None:
    parent = start(PARENT)
    wait_until(lambda: parent.log.read_text().endswith("\n"), "the grandchild's pid")
    grandchild = int(parent.log.read_text())

    os.kill(parent.pid, signal.SIGKILL)

    wait_until(lambda: not parent.alive(), "the parent to be gone")
    wait_until(lambda: fingerprint(grandchild) is None, "the grandchild to be gone")


def test_kills_a_child_that_does_not_stop_in_time(start: Callable[..., Process]) -> None:
    stubborn = start(STUBBORN, grace=0.1)
    wait_until(lambda: "deaf" in stubborn.log.read_text(), "the child to ignore SIGTERM")

    stubborn.stop()

    assert stubborn.exit_code == -signal.SIGKILL


def test_dies_with_its_launcher(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LAUNCHER, str(tmp_path / "log")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) as launcher:
        assert launcher.stdout is not None
        child = int(launcher.stdout.readline())
        assert fingerprint(child)
        launcher.kill()

    wait_until(lambda: fingerprint(child) is None, "the child to be gone")


def test_stops_another_process_only_by_its_fingerprint(start: Callable[..., Process]) -> None:
    stranger, known = start(IDLE), start(IDLE)
    known_fingerprint = fingerprint(known.pid)
    assert known_fingerprint

    assert not stop_other(stranger.pid, known_fingerprint + "0", signal.SIGTERM, grace=5.0)
    assert stop_other(known.pid, known_fingerprint, signal.SIGTERM, grace=5.0)

    assert stranger.alive()
    assert not known.alive()
