"""bin/check: all static checks, each of them even when an earlier one failed."""

from __future__ import annotations

import argparse
import subprocess
import time

from launcher import paths, throwaway, venv
from launcher.commands import conduct
from launcher.console import RED, Console

IMPORT_LINTER = "from importlinter.cli import lint_imports_command; lint_imports_command()"
STEPS = {
    "lint": ["-m", "ruff", "check", "."],
    "format": ["-m", "ruff", "format", "--check", "."],
    "types": ["-m", "mypy"],
    "imports": ["-c", IMPORT_LINTER],
    "django": ["manage.py", "check", "--fail-level", "WARNING"],
    "migrations": ["manage.py", "makemigrations", "--check", "--dry-run"],
}
FIXES = {
    "lint": ["-m", "ruff", "check", "--fix", "."],
    "format": ["-m", "ruff", "format", "."],
}


def main(argv: list[str]) -> int:
    """Run the checks; 1 when any failed."""
    parser = argparse.ArgumentParser(prog="bin/check", description="Run all static checks.")
    parser.add_argument("--fix", action="store_true", help="let ruff repair and format first")
    options = parser.parse_args(argv)
    steps = STEPS | FIXES if options.fix else STEPS
    return conduct(lambda console: _check(console, steps))


def _check(console: Console, steps: dict[str, list[str]]) -> int:
    venv.ensure(console)
    # Without a database makemigrations waits for one, and then only warns.
    with throwaway.environment() as env:
        failed = [name for name, arguments in steps.items() if not _passes(name, arguments, env, console)]
    if failed:
        console.fail(f"Failed: {', '.join(failed)}")
    return 1 if failed else 0


def _passes(name: str, arguments: list[str], env: dict[str, str], console: Console) -> bool:
    began = time.monotonic()
    console.status(name, "running")
    ran = subprocess.run(
        [paths.python(), *arguments],
        cwd=paths.REPO,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    if ran.returncode == 0:
        console.step(name, f"ok ({seconds:.1f} s)")
        return True
    console.say(ran.stdout.rstrip())
    console.say(f"  {console.paint(RED, name.ljust(12))} FAILED ({seconds:.1f} s)")
    return False
