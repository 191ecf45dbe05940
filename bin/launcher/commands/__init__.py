"""One module per command in bin/, and how each of them ends."""

from __future__ import annotations

from collections.abc import Callable

from launcher.console import Console
from launcher.errors import LauncherError
from launcher.supervisor import Stopped, stoppable

FAILED, INTERRUPTED = 1, 130


def conduct(action: Callable[[Console], int]) -> int:
    """Run a command and return its exit code: its own, 1 with the reason printed, or 130 when stopped."""
    console = Console()
    try:
        with stoppable():
            return action(console)
    except LauncherError as error:
        console.fail(str(error))
        return FAILED
    except Stopped:
        console.say("Stopped.")
        return INTERRUPTED
    finally:
        console.clear()
