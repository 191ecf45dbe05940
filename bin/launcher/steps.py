"""Commands that run to their end while the terminal shows how far they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from launcher.console import Console
from launcher.errors import LauncherError, tail
from launcher.processes import Process

REFRESH = 0.2  # seconds


class Progress(Protocol):
    """Reads a command's output line by line and tells in a few words how far it is."""

    def feed(self, line: str) -> None:
        """Take in one line of output."""
        ...

    def text(self) -> str:
        """How far the command is."""
        ...


class Quiet:
    """Progress of a command with nothing to tell but that it runs."""

    def __init__(self, text: str) -> None:
        self._text = text

    def feed(self, line: str) -> None:
        """Take in one line of output: it changes nothing."""

    def text(self) -> str:
        """What was said at the start."""
        return self._text


def run_to_end(
    process: Process,
    *,
    label: str,
    progress: Progress,
    console: Console,
    pause: Callable[[float], None] = time.sleep,
) -> float:
    """Run a command, showing its progress, and return its seconds.

    Raises LauncherError with the end of its output when it exits with anything but 0.
    """
    began = time.monotonic()
    reader = LogReader(process.log)
    process.start()
    try:
        while process.alive():
            for line in reader.new_lines():
                progress.feed(line)
            console.status(label, f"{progress.text()}  {time.monotonic() - began:.0f} s")
            pause(REFRESH)
    finally:
        process.stop()
    for line in reader.new_lines():
        progress.feed(line)
    if process.exit_code != 0:
        raise LauncherError(f"{label} failed (exit code {process.exit_code}):\n{tail(process.log, 30)}")
    return time.monotonic() - began


class LogReader:
    """Follows a growing log file from its present end."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._position = log.stat().st_size if log.exists() else 0
        self._rest = ""

    def new_lines(self) -> list[str]:
        """The complete lines written since the last call."""
        with self._log.open("rb") as file:
            file.seek(self._position)
            added = file.read()
        self._position += len(added)
        *lines, self._rest = (self._rest + added.decode(errors="replace")).split("\n")
        return lines
