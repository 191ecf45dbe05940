"""The virtual environment: made when missing, brought up to date when the requirements changed."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from launcher import paths
from launcher.console import Console
from launcher.errors import LauncherError
from launcher.processes import Process
from launcher.state import exclusive
from launcher.steps import Quiet, run_to_end

LABEL = "packages"
REQUIREMENTS = "requirements-dev.txt"
# Variables that would make an interpreter of ours import another project's packages or settings.
FOREIGN = ("PYTHONHOME", "PYTHONPATH", "DJANGO_SETTINGS_MODULE", "PIP_USER", "PIP_TARGET", "PIP_PREFIX")


def child_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's environment for a child of ours, without what leads Python astray."""
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    return {**kept, "PYTHONUNBUFFERED": "1", **(extra or {})}


def ensure(console: Console) -> None:
    """Make .venv hold what the requirements say. No network is used when nothing changed.

    Raises LauncherError with pip's last lines when the installation fails.
    """
    if _is_current():
        return
    directory = paths.home() / ".pilot"
    directory.mkdir(exist_ok=True)
    with exclusive(
        directory / "venv.lock",
        waiting=lambda: console.say("  another command installs packages; waiting for it"),
    ):
        if not _is_current():
            _install(console)


def _is_current() -> bool:
    stamp = paths.venv() / "pilot-stamp"
    return (
        os.access(paths.python(), os.X_OK) and stamp.exists() and stamp.read_text() == _requirements_digest()
    )


def _requirements_digest() -> str:
    files = sorted(paths.REPO.glob("requirements*.txt"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def _install(console: Console) -> None:
    log = paths.home() / ".pilot" / "logs" / "packages.log"
    log.unlink(missing_ok=True)
    if not os.access(paths.python(), os.X_OK):
        _create(console, log)
    progress = PipProgress(paths.venv())
    arguments = ["install", "--progress-bar", "off", "--disable-pip-version-check", "-r", REQUIREMENTS]
    pip = Process(LABEL, [*_pip(), *arguments], log=log, env=child_env(), cwd=paths.REPO)
    seconds = run_to_end(pip, label=LABEL, progress=progress, console=console)
    (paths.venv() / "pilot-stamp").write_text(_requirements_digest())
    console.step(LABEL, f"{progress.installed()} installed in {paths.venv()} ({seconds:.0f} s)")


def _create(console: Console, log: Path) -> None:
    # Debian ships venv without ensurepip: then the pip beside this interpreter installs into the new venv.
    without_pip = [] if _has("ensurepip") else ["--without-pip"]
    if without_pip and not _has("pip"):
        raise LauncherError(
            f"{sys.executable} has neither pip nor ensurepip; install the package python3-pip."
        )
    argv = [sys.executable, "-m", "venv", "--clear", *without_pip, str(paths.venv())]
    make = Process(LABEL, argv, log=log, env=child_env(), cwd=paths.REPO)
    run_to_end(make, label=LABEL, progress=Quiet("making the virtual environment"), console=console)


def _pip() -> list[str]:
    own = [paths.python(), "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True, env=child_env(), check=False).returncode == 0:
        return own
    return [sys.executable, "-m", "pip", "--python", paths.python()]


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


class PipProgress:
    """Counts what pip found, then what it has unpacked."""

    def __init__(self, venv: Path) -> None:
        self._venv = venv
        self._wanted: set[str] = set()
        self._total = 0

    def feed(self, line: str) -> None:
        """Take in one line of pip's output."""
        words = line.split()
        if line.startswith("Collecting "):
            self._wanted.add(words[1])
        if line.startswith("Installing collected packages:"):
            self._total = line.count(",") + 1

    def text(self) -> str:
        """How many packages are fetched or unpacked, and the newest of them."""
        if self._total:
            return f"unpacking {self._total} packages, {self.installed()} there"
        return f"fetching {len(self._wanted)} packages (a few minutes, once)"

    def installed(self) -> int:
        """The number of packages in the environment."""
        return sum(1 for _ in self._venv.glob("lib/python3*/site-packages/*.dist-info"))
