"""Started by bin/bench with the environment of fresh servers: measures, and prints one JSON line per run."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from statistics import median
from typing import Any, TextIO

from launcher.commands import bench as command
from launcher.commands import conduct
from launcher.console import Console

from bench import reference
from bench.reference import Figures
from bench.stage import Stage

# The figures of which a comparison gives the ratio.
COMPARED = {
    "accept": ("requests_per_s",),
    "drain": ("messages_per_s",),
    "idle": ("rss_mb", "cpu_cores", "redis_connections"),
}


def main(argv: list[str]) -> int:
    """Measure what the arguments ask for; 1, with the reason on standard error, when a run failed."""
    options, lines = command.parser().parse_args(argv), sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        return conduct(lambda console: _run(options, console, lines))


def _run(options: argparse.Namespace, console: Console, lines: TextIO) -> int:
    stage = Stage.ready(os.environ, console)
    rounds = options.rounds or (2 if options.against else 1)
    runs: list[Figures] = []
    for _round in range(rounds):
        runs.append(_pilot(stage, options))
        _print(runs[-1], lines)
        if options.against:
            runs.append(reference.measure(stage, options))
            _print(runs[-1], lines)
    if options.against:
        _print(_comparison(options.what, runs), lines)
    return 0


def _pilot(stage: Stage, options: argparse.Namespace) -> Figures:
    from bench import pilot  # rows need Django, which Stage.ready() has set up

    figures = pilot.MEASUREMENTS[options.what](stage, options)
    return {"stack": "pilot", "what": options.what} | figures


def _comparison(what: str, runs: list[Figures]) -> Figures:
    """The medians of both stacks, and Pilot's as a share of the other's."""
    ours, theirs = runs[0]["stack"], runs[1]["stack"]
    medians = {
        stack: _medians(what, [run for run in runs if run["stack"] == stack]) for stack in (ours, theirs)
    }
    return {
        "what": what,
        "rounds": len(runs) // 2,
        **medians,
        "ratio": _ratio(medians[ours], medians[theirs]),
    }


def _medians(what: str, runs: list[Figures]) -> dict[str, float]:
    return {name: round(median(run[name] for run in runs), 3) for name in COMPARED[what]}


def _ratio(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float | None]:
    return {name: round(ours[name] / theirs[name], 3) if theirs[name] else None for name in ours}


def _print(line: Mapping[str, Any], lines: TextIO) -> None:
    print(json.dumps(line), file=lines, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
