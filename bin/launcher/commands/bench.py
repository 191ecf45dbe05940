"""bin/bench: how fast Pilot is, alone or against another stack, on servers of its own."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from launcher import paths, throwaway, venv
from launcher.commands import conduct
from launcher.console import Console
from launcher.errors import LauncherError
from launcher.processes import die_with

# What each measurement needs besides Python, and what another stack needs on top.
TOOLS = {"accept": ("wrk",), "accept-batch": (), "drain": ("node",), "idle": ()}
ALONE = {"accept-batch"}  # what no other stack can do
RIVAL_TOOLS = ("node", "npm", "psql", "redis-cli")
PACKAGES = {"node": "nodejs", "psql": "postgresql-client", "redis-cli": "redis-tools"}


def main(argv: list[str]) -> int:
    """Measure, with JSON lines alone on standard output; 1 when a measurement failed."""
    options = parser().parse_args(argv)
    with contextlib.redirect_stdout(sys.stderr):
        return conduct(lambda console: _bench(argv, options, console))


def parser() -> argparse.ArgumentParser:
    """The command line of bin/bench."""
    bench = argparse.ArgumentParser(
        prog="bin/bench",
        description="Measure Pilot on throw-away servers that write every commit to disk. One JSON line per run.",
        epilog="See docs/performance.md for what is measured, and for the figures to expect.",
    )
    bench.add_argument("what", choices=TOOLS, help="requests accepted, messages sent, or an idle worker")
    bench.add_argument(
        "--against", type=Path, metavar="DIR", help="alternate with the stack in DIR (its run.py)"
    )
    bench.add_argument(
        "--rounds", type=_positive, metavar="N", help="runs of each stack (2 with --against, else 1)"
    )
    for name, (default, text) in NUMBERS.items():
        bench.add_argument(
            f"--{name}", type=_positive, metavar="N", default=default, help=f"{text} ({default})"
        )
    return bench


NUMBERS = {
    "seconds": (10, "accept, accept-batch: how long"),
    "connections": (32, "accept: clients at once"),
    "web": (2, "accept, accept-batch: web processes"),
    "messages": (10_000, "drain: how many wait"),
    "workers": (1, "drain: worker processes"),
    "instances": (1000, "idle: open instances"),
}


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _bench(argv: list[str], options: argparse.Namespace, console: Console) -> int:
    _require([*TOOLS[options.what], *(RIVAL_TOOLS if options.against else ())])
    if options.against and options.what in ALONE:
        raise LauncherError(f"{options.what} cannot be measured against another stack.")
    if options.against and not (options.against / "run.py").exists():
        raise LauncherError(f"{options.against} has no run.py to measure.")
    for name in ("DATABASE_URL", "REDIS_URL"):
        os.environ.pop(name, None)  # whatever servers these are, a benchmark must not empty them
    venv.ensure(console)
    with throwaway.environment(durable=True) as env:
        return _measure(argv, env)


def _require(tools: list[str]) -> None:
    missing = [tool for tool in dict.fromkeys(tools) if shutil.which(tool) is None]
    if missing:
        packages = " ".join(dict.fromkeys(PACKAGES.get(tool, tool) for tool in missing))
        raise LauncherError(f"Not installed: {', '.join(missing)}. On Debian: apt install {packages}")


def _measure(argv: list[str], env: Mapping[str, str]) -> int:
    die = functools.partial(die_with, os.getpid(), signal.SIGTERM)
    command = [paths.python(), "-m", "bench", *argv]
    own = {"PYTHONPATH": str(paths.REPO / "bin"), "DJANGO_SETTINGS_MODULE": "pilot.settings"}
    measuring = subprocess.Popen(command, cwd=paths.REPO, env={**env, **own}, preexec_fn=die)
    with measuring:
        return measuring.wait()
