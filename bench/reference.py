"""Another stack, measured by its own run.py on the servers that Pilot is measured on."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from launcher.processes import Process
from launcher.steps import Quiet, run_to_end

from bench.stage import Stage

Figures = dict[str, Any]
OPTIONS = {
    "accept": ("seconds", "connections"),
    "drain": ("messages",),
    "idle": ("instances",),
}
DATABASE, REDIS_DATABASE = "reference", 9


def measure(stage: Stage, options: argparse.Namespace) -> Figures:
    """Run `run.py` of the directory, which prints one JSON line. Raises LauncherError when it fails."""
    directory = options.against.resolve()
    if (directory / "package.json").exists() and not (directory / "node_modules").exists():
        _run(
            stage,
            directory,
            "npm install",
            ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"],
        )
    stage.clear()
    numbers = [f"--{name}={getattr(options, name)}" for name in OPTIONS[options.what]]
    servers = [f"--database={stage.database(DATABASE)}", f"--redis={_redis_url(stage)}"]
    output = _run(
        stage, directory, options.what, [sys.executable, "run.py", options.what, *servers, *numbers]
    )
    figures: Figures = json.loads(output.splitlines()[-1])
    return figures


def _run(stage: Stage, directory: Path, label: str, argv: list[str]) -> str:
    log = stage.state.log("reference")
    log.unlink(missing_ok=True)
    process = Process(label, argv, log=log, env=stage.env, cwd=directory)
    seconds = run_to_end(process, label=directory.name, progress=Quiet(label), console=stage.console)
    stage.console.step(directory.name, f"{label} ({seconds:.0f} s)")
    return log.read_text()


def _redis_url(stage: Stage) -> str:
    return stage.addresses.redis_url.rpartition("/")[0] + f"/{REDIS_DATABASE}"
