"""A directory that database servers can enter, and a clone of the repo with a stand-in for the product."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from launcher import paths
from launcher.ports import free_port

STANDIN = Path(__file__).parent / "standin"
DEADLINE = 60.0  # seconds


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Poll until the condition holds; fail with its description after the deadline."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE:.0f} s: {what}"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def open_directory() -> Iterator[Path]:
    """A directory, with a space in its path, that every account can enter."""
    base = Path(tempfile.mkdtemp(dir=os.environ.get("PILOT_TEST_ENGINES")))
    directory = base / "new comer"
    directory.mkdir()
    for made in (base, directory):
        made.chmod(0o755)
    yield directory
    shutil.rmtree(base)


@dataclass
class Clone:
    """A copy of the launcher beside the stand-in product, sharing our virtual environment."""

    root: Path
    started: list[Launch] = field(default_factory=list)

    @property
    def state(self) -> Path:
        """What bin/run keeps there."""
        return self.root / ".pilot"

    def ports(self) -> dict[str, int]:
        """The ports that bin/run remembers."""
        remembered: dict[str, int] = json.loads((self.state / "ports.json").read_text())
        return remembered

    def start(self, *command: str, **env: str) -> Launch:
        """Start a command of bin/ without waiting for it."""
        launch = Launch(self, list(command), env)
        self.started.append(launch)
        return launch

    def run(self, *command: str, **env: str) -> Launch:
        """Run a command of bin/ to its end."""
        launch = self.start(*command, **env)
        launch.process.wait(DEADLINE)
        return launch

    def pid(self, name: str) -> int:
        """The pid that a stand-in process wrote down last."""
        return int((self.root / "reports" / f"{name}.pid").read_text())


class Launch:
    """A command of bin/ that was started."""

    def __init__(self, clone: Clone, command: list[str], env: dict[str, str]) -> None:
        self._output = clone.root / f"output-{len(clone.started)}"
        program, *arguments = command
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                [str(clone.root / "bin" / program), *arguments],
                cwd="/",
                env=_bare_environment() | env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._output.read_text()

    @property
    def code(self) -> int | None:
        """Its exit code."""
        return self.process.poll()

    def wait_for(self, text: str) -> None:
        """Wait until it has printed the text."""
        wait_until(lambda: text in self.output or self.code is not None, text)
        assert text in self.output, self.output

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        self.process.wait(DEADLINE)


def _bare_environment() -> dict[str, str]:
    ours = ("DATABASE_URL", "REDIS_URL", "PYTHONPATH")  # bin/test sets the first two for us
    return {name: value for name, value in os.environ.items() if name not in ours}


@pytest.fixture(scope="session")
def clone_root(open_directory: Path) -> Path:
    """The files of a clone, made once: tests that need fresh data say --reset."""
    root = open_directory / "pilot"
    shutil.copytree(paths.REPO / "bin", root / "bin", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(STANDIN, root, dirs_exist_ok=True)
    for requirements in paths.REPO.glob("requirements*.txt"):
        shutil.copy(requirements, root)
    (root / ".venv").symlink_to(paths.venv())
    (root / ".pilot").mkdir()
    names = ("web", "sandbox", "postgres", "valkey")
    (root / ".pilot" / "ports.json").write_text(json.dumps({name: free_port() for name in names}))
    return root


@pytest.fixture
def clone(clone_root: Path) -> Iterator[Clone]:
    """The clone; whatever a test leaves running there is killed."""
    shutil.rmtree(clone_root / "reports", ignore_errors=True)
    clone = Clone(clone_root)
    yield clone
    for launch in clone.started:
        launch.process.kill()
        launch.process.wait()
