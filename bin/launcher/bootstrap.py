"""Hand a command over to a Python that is new enough. Must stay readable by any Python 3."""

import importlib
import os
import subprocess
import sys

OLDEST = (3, 11)
CANDIDATES = ("python3.14", "python3.13", "python3.12", "python3.11")


def enter(command: str) -> None:
    """Run launcher.commands.<command> and exit with its code; changes to a newer Python first if need be."""
    if os.name != "posix":
        sys.exit("Pilot's commands run on Linux and macOS; on Windows use WSL 2.")
    if sys.version_info < OLDEST:
        _change_python()
    module = importlib.import_module("launcher.commands." + command)
    sys.exit(module.main(sys.argv[1:]))


def _change_python() -> None:
    for name in CANDIDATES:
        if _is_new_enough(name):
            os.execvp(name, [name] + sys.argv)  # noqa: RUF005 (Python 3.4 would not parse the alternative)
    found = ".".join(str(part) for part in sys.version_info[:3])
    sys.exit("Pilot needs Python 3.11 or newer; found only %s (%s)." % (found, sys.executable))  # noqa: UP031


def _is_new_enough(name: str) -> bool:
    # Asked, not guessed from the name: version managers put shims on PATH that cannot run.
    probe = "import sys; sys.exit(sys.version_info < (3, 11))"
    try:
        return subprocess.call([name, "-c", probe], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False
