"""The part of bin/chaos that runs in the virtual environment."""

from __future__ import annotations

import contextlib
import shutil
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from launcher import paths, throwaway
from launcher.chaos import dying, schedule
from launcher.chaos.run import Run
from launcher.chaos.schedule import Plan
from launcher.commands import FAILED, chaos, conduct
from launcher.console import Console
from launcher.state import State


def main(argv: Sequence[str]) -> int:
    """Run, with the JSON line alone on standard output; 1 unless every promise was kept."""
    options = chaos.options(argv)
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        return conduct(lambda console: _chaos(options, console, out))


def _chaos(options: Namespace, console: Console, out: TextIO) -> int:
    with throwaway.workspace() as directory:
        state = State(directory / "chaos")
        kept = True
        try:
            report = Run(_plan(options), state, console).run()
            print(report.line(), file=out)
            problems = report.problems()
            if problems:
                console.fail("Not every promise was kept.\n  " + "\n  ".join(problems))
            kept = options.keep or bool(problems)
            return FAILED if problems else 0
        finally:
            if kept:
                _keep(state.logs, options, console)


def _plan(options: Namespace) -> Plan:
    return schedule.plan(
        seed=options.seed,
        messages=options.messages,
        faults=options.faults,
        seconds=options.seconds,
        steps=dying.process_of_steps(),
    )


def _keep(logs: Path, options: Namespace, console: Console) -> None:
    kept = paths.home() / ".pilot" / "chaos" / f"seed-{options.seed}"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(logs, kept)
    console.say(f"  journal, findings and logs: {kept}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
