"""What happened in a run and when, for whoever has to find out why something went wrong."""

from __future__ import annotations

import time
from pathlib import Path


class Journal:
    """One line for each thing that was done to the product, with the second of the run and the time of day."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = time.time()

    def begin(self) -> None:
        """Seconds count from now."""
        self._began = time.time()

    def write(self, what: str, detail: str) -> None:
        """Add a line."""
        now = time.time()
        clock = time.strftime("%H:%M:%S", time.gmtime(now)) + f".{now % 1 * 1000:03.0f}"
        with self._path.open("a") as file:
            file.write(f"{now - self._began:8.2f}  {clock}  {what:<8}  {detail}\n")
