"""`python -m tests.messaging.dying STEP INSTANCE_ID`: a dispatcher that is killed at one named step of its first send.

No hook in the product: the step's function is wrapped here, and the process kills itself with SIGKILL, so that nothing
is cleaned up.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import django


def die(*_args: Any, **_kwargs: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(function: Callable[..., Any]) -> Callable[..., Any]:
    """Dies instead of calling."""
    return functools.wraps(function)(die)


def after(function: Callable[..., Any]) -> Callable[..., Any]:
    """Calls, then dies."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)
        die()

    return wrapped


def arm(step: str) -> None:
    """Wraps the function at which `step` happens."""
    from instances.providers.http import AsyncHttp
    from messaging import claiming, dispatching

    steps: dict[str, tuple[Any, str, Callable[..., Any]]] = {
        "before the claim commits": (claiming, "occupy", after),
        "after the claim": (dispatching, "claim", after),
        "before the call": (AsyncHttp, "perform", before),
        "after the answer": (dispatching, "settle", before),
        "after settle": (dispatching, "settle", after),
    }
    if step in steps:
        owner, name, wrap = steps[step]
        setattr(owner, name, wrap(getattr(owner, name)))


def main() -> None:
    django.setup()
    from messaging.dispatching import Dispatcher

    arm(sys.argv[1])
    dispatcher = Dispatcher(in_flight=5)
    dispatcher.start()
    dispatcher.wake(int(sys.argv[2]))
    time.sleep(30)  # to be killed before


if __name__ == "__main__":
    main()
