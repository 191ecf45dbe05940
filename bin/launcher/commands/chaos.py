"""bin/chaos: real processes under a seeded schedule of faults, then an exact comparison with what was really sent."""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Sequence

from launcher import paths, venv
from launcher.commands import conduct
from launcher.console import Console

RATE = 40  # messages a second that are asked for unless --seconds says otherwise
SHORTEST = 20.0  # seconds


def main(argv: Sequence[str]) -> int:
    """Make the virtual environment and go on in it, where what a run needs is installed."""
    parser().parse_args(argv)
    return conduct(lambda console: _go_on(argv, console))


def _go_on(argv: Sequence[str], console: Console) -> int:
    venv.ensure(console)
    env = venv.child_env({"PYTHONPATH": str(paths.REPO / "bin")})
    os.chdir(paths.REPO)
    os.execve(paths.python(), [paths.python(), "-m", "launcher.chaos", *argv], env)


def options(argv: Sequence[str]) -> argparse.Namespace:
    """The command line, with what was left out filled in."""
    given = parser().parse_args(argv)
    given.seconds = given.seconds or max(given.messages / RATE, SHORTEST)
    given.seed = random.randrange(1_000_000) if given.seed is None else given.seed
    return given


def parser() -> argparse.ArgumentParser:
    """The command line of bin/chaos."""
    chaos = argparse.ArgumentParser(
        prog="bin/chaos",
        description="Break everything while messages are sent, then compare every one of them with what went out.",
        epilog="See docs/reliability.md for what is broken, what is compared, and what to expect.",
    )
    chaos.add_argument("--messages", type=_positive, metavar="N", default=800, help="how many (800)")
    chaos.add_argument("--faults", type=_positive, metavar="N", default=15, help="how many (15)")
    chaos.add_argument("--seconds", type=_positive, metavar="N", help="how long messages are asked for")
    chaos.add_argument("--seed", type=int, metavar="N", help="of the schedule (a random one)")
    chaos.add_argument("--keep", action="store_true", help="keep journal, tables and logs of a good run, too")
    return chaos


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number
