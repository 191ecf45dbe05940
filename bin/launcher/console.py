"""What the commands print: a line per step, and one status line that keeps moving meanwhile."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import time
from collections.abc import Iterator

STATUS_INTERVAL = 5.0  # seconds between status lines where they cannot be overwritten
LABEL_WIDTH = 12

BOLD, RED, GREEN, YELLOW = "1", "31", "32", "33"


class Console:
    """Prints to standard output; colours and overwrites lines only on a terminal."""

    def __init__(self) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace", line_buffering=True)
        self._live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._colour = self._live and "NO_COLOR" not in os.environ
        self._status_shown = False
        self._status_at = time.monotonic()

    def say(self, text: str = "") -> None:
        """Print a line that stays."""
        self.clear()
        print(text)

    def clear(self) -> None:
        """Take the status line away."""
        if self._status_shown:
            sys.stdout.write("\r\033[K")
            sys.stdout.flush()
            self._status_shown = False

    def step(self, label: str, text: str) -> None:
        """Print the outcome of a finished step."""
        self.say(f"  {self.paint(GREEN, label.ljust(LABEL_WIDTH))} {text}")

    def warn(self, text: str) -> None:
        """Print something that is wrong but under control."""
        self.say(self.paint(YELLOW, f"  ! {text}"))

    def fail(self, text: str) -> None:
        """Print why the command gives up."""
        first, _, rest = text.partition("\n")
        self.say(self.paint(RED, first) + (f"\n{rest}" if rest else ""))

    def status(self, label: str, text: str) -> None:
        """Show what is going on; the next line printed takes its place on a terminal."""
        line = f"  {label.ljust(LABEL_WIDTH)} {text}"
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            sys.stdout.write(f"\r\033[K{line[:width]}")
            sys.stdout.flush()
            self._status_shown = True
        elif time.monotonic() - self._status_at >= STATUS_INTERVAL:
            print(line)
            self._status_at = time.monotonic()

    def paint(self, colour: str, text: str) -> str:
        """The text in a colour, or as it is where colours do not belong."""
        return f"\033[{colour}m{text}\033[0m" if self._colour else text

    @contextlib.contextmanager
    def timed(self, label: str, text: str) -> Iterator[None]:
        """Show a status during the block and a step with its seconds after it."""
        began = time.monotonic()
        self.status(label, text)
        yield
        self.step(label, f"{text} ({time.monotonic() - began:.1f} s)")
