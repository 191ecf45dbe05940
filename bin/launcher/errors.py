"""The one error the launcher raises: a sentence for the person at the terminal."""

from __future__ import annotations

from pathlib import Path


class LauncherError(Exception):
    """Something a person must know or do; its text is printed as it is and the command exits 1."""


def tail(log: Path, lines: int = 12) -> str:
    """The last lines of a log file, indented for the terminal; a note instead when there are none."""
    if not log.exists():
        return f"    (no log at {log})"
    with log.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - 64 * 1024))
        text = file.read().decode(errors="replace").rstrip()
    return "\n".join(f"    | {line}" for line in text.splitlines()[-lines:]) or f"    ({log} is empty)"
