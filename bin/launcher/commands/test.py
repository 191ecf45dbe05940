"""bin/test: pytest with servers that exist only for this run."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
from collections.abc import Mapping

from launcher import paths, throwaway, translations, venv
from launcher.commands import conduct
from launcher.console import Console
from launcher.processes import die_with
from launcher.supervisor import Stopped

PYTEST_GRACE = 30.0


def main(argv: list[str]) -> int:
    """Run pytest with these arguments and return its exit code."""
    return conduct(lambda console: _test(argv, console))


def _test(argv: list[str], console: Console) -> int:
    venv.ensure(console)
    with throwaway.environment() as env:
        translations.ensure(console, env)
        return _pytest(argv, env)


def _pytest(argv: list[str], env: Mapping[str, str]) -> int:
    # In our process group: a terminal's Ctrl-C reaches pytest by itself, and pdb can read the terminal.
    die = functools.partial(die_with, os.getpid(), signal.SIGTERM)
    command = [paths.python(), "-m", "pytest", *argv]
    pytest = subprocess.Popen(command, cwd=paths.REPO, env=env, preexec_fn=die)
    try:
        return pytest.wait()
    except Stopped:
        _finish(pytest)
        raise


def _finish(pytest: subprocess.Popen[bytes]) -> None:
    pytest.send_signal(signal.SIGINT)
    try:
        pytest.wait(PYTEST_GRACE)
    except subprocess.TimeoutExpired:
        pytest.kill()
        pytest.wait()
