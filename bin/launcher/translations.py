"""The compiled catalogues that the pages read: made from the .po files, not kept in git."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from launcher import paths
from launcher.console import Console
from launcher.errors import LauncherError


def ensure(console: Console, env: Mapping[str, str]) -> None:
    """Compile what is missing or older than its source; usually nothing, and then no process is started.

    Raises LauncherError with what the compiler said.
    """
    stale = [source for source in paths.REPO.glob("locale/*/LC_MESSAGES/*.po") if _is_stale(source)]
    if not stale:
        return
    with console.timed("translations", f"{len(stale)} compiled"):
        command = [paths.python(), "manage.py", "compile_translations"]
        done = subprocess.run(command, cwd=paths.REPO, env=dict(env), capture_output=True, text=True)
    if done.returncode:
        raise LauncherError(f"The translations could not be compiled:\n{done.stderr}")


def _is_stale(source: Path) -> bool:
    compiled = source.with_suffix(".mo")
    return not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime
