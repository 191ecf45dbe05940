"""What the stand-in processes share: each reports itself in a file, and STANDIN names what goes wrong."""

import os
import signal
import sys
import time
from pathlib import Path

TROUBLE = os.environ.get("STANDIN", "")
REPORTS = Path("reports")


def run_as(name: str) -> None:
    """Report this process under its name, then idle until SIGTERM."""
    if f"{name}-crashes" in TROUBLE:
        sys.exit(f"{name}: cannot import the settings")
    report(name)
    signal.signal(signal.SIGTERM, lambda *_: stop(name))
    while True:
        time.sleep(60)


def report(name: str) -> None:
    """Write down our pid, for tests and for /health."""
    REPORTS.mkdir(exist_ok=True)
    (REPORTS / f"{name}.pid").write_text(str(os.getpid()))


def stop(name: str) -> None:
    """End in good order, leaving a note that tests look for."""
    (REPORTS / f"{name}.stopped").touch()
    sys.exit(0)
