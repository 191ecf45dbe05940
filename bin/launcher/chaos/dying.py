"""Runs a process of the product, unchanged but for one thing: it can be made to die at a named step.

    python -m launcher.chaos.dying worker /run/worker1 -- manage.py worker …

Writing "3" to /run/worker1/after_claim kills the process (SIGKILL) the third time it gets to the step `after_claim`;
the file is gone then. Functions of the product are wrapped by name, so one that moves fails here, loudly, at the start.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import runpy
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Step:
    """A place in the code of one kind of process: before a call of `function` or after it returned.

    `counts` says of the call's arguments (before) or its result (after) whether this is the real thing: a claim that
    found nothing to claim is none.
    """

    process: str
    function: str  # module:attribute
    before: bool = False
    counts: Callable[[Any], bool] = bool


def _first(arguments: Sequence[Any]) -> bool:
    """The first argument is not empty."""
    return bool(arguments[0])


def _always(_given: Any) -> bool:
    return True


def _sends(arguments: Sequence[Any]) -> bool:
    """AsyncHttp.perform(self, call) with a call that hands a message over."""
    return bool(arguments[1].sends)


def _answers_send(arguments: Sequence[Any]) -> bool:
    """http._read(response) of a send: its status line and headers have come, its body was not read."""
    return "/message/" in str(arguments[0].url)


def _added_entries(result: Sequence[Any]) -> bool:
    """Pipeline.execute() gave ids of stream entries."""
    return any(isinstance(item, bytes) and b"-" in item for item in result)


STEPS: Mapping[str, Step] = {
    # worker: one message's way out
    "before_claim_commits": Step("worker", "messaging.claiming:occupy", before=True, counts=_first),
    "after_claim": Step("worker", "messaging.dispatching:claim"),
    "before_call": Step("worker", "instances.providers.http:AsyncHttp.perform", before=True, counts=_sends),
    "before_answer_is_read": Step(
        "worker", "instances.providers.http:_read", before=True, counts=_answers_send
    ),
    "before_settle": Step("worker", "messaging.dispatching:settle", before=True, counts=_first),
    "before_settle_commits": Step("worker", "messaging.settling:vacate", before=True, counts=_first),
    "before_wake_after_settle": Step("worker", "messaging.dispatching:settle", counts=_always),
    # worker: what time decides
    "before_pulse_wakes": Step("worker", "messaging.pulse:wake_in_shards", before=True, counts=_first),
    "before_lease_ends": Step("worker", "messaging.reconciling:_release_batch"),
    "before_expiry_commits": Step("worker", "messaging.reconciling:_expire_batch"),
    "before_look_up_is_applied": Step("worker", "messaging.reconciling:_apply", before=True, counts=_first),
    # web
    "before_accept_commits": Step("web", "messaging.accepting:wake_on_commit", before=True, counts=_always),
    "before_accept_is_answered": Step("web", "messaging.accepting:_store"),
    "before_hook_is_stored": Step("web", "webhooks.inbound:_store", before=True, counts=_always),
    "before_hook_is_answered": Step("web", "webhooks.inbound:_store", counts=_always),
    # consume
    "before_news_commits": Step("consume", "webhooks.applying:_close", before=True, counts=_first),
    "after_news": Step("consume", "webhooks.applying:apply_pending"),
    "before_parked_commits": Step("consume", "messaging.receiving:_apply_found"),
    "before_echo_commits": Step("consume", "messaging.echoes:identify"),
    "after_numbering": Step("consume", "pilot.outbox:number"),
    "before_place_is_stored": Step("consume", "redis.client:Pipeline.execute", counts=_added_entries),
}


def process_of_steps() -> dict[str, str]:
    """The kind of process of each step."""
    return {name: step.process for name, step in STEPS.items()}


class Fuses:
    """A directory with a file for each step at which this process is to die: at which time of getting there."""

    def __init__(self, directory: Path, *, die: Callable[[], None]) -> None:
        self._directory = directory
        self._die = die
        self._reached: Counter[str] = Counter()

    def reach(self, step: str) -> None:
        """The process is at this step now."""
        fuse = self._directory / step
        try:
            after = int(fuse.read_text())
        except FileNotFoundError:
            return
        self._reached[step] += 1
        if self._reached[step] >= after:
            fuse.unlink(missing_ok=True)
            self._die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wrap(name: str, step: Step, fuses: Fuses) -> None:
    """Replaces the step's function by one that looks at its fuse."""
    owner, attribute = _find(step.function)
    function = getattr(owner, attribute)
    reach = functools.partial(fuses.reach, name)
    setattr(
        owner,
        attribute,
        (_wrap_async if inspect.iscoroutinefunction(function) else _wrap)(function, step, reach),
    )


def _find(path: str) -> tuple[Any, str]:
    module, _, attributes = path.partition(":")
    *owners, attribute = attributes.split(".")
    owner = functools.reduce(getattr, owners, importlib.import_module(module))
    return owner, attribute


def _wrap(function: Callable[..., Any], step: Step, reach: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if step.before and step.counts(args):
            reach()
        result = function(*args, **kwargs)
        if not step.before and step.counts(result):
            reach()
        return result

    return wrapped


def _wrap_async(function: Callable[..., Any], step: Step, reach: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        if step.before and step.counts(args):
            reach()
        result = await function(*args, **kwargs)
        if not step.before and step.counts(result):
            reach()
        return result

    return wrapped


def main(argv: Sequence[str]) -> None:
    """KIND DIRECTORY -- ARGUMENTS OF PYTHON."""
    kind, directory, _dashes, *command = argv
    import django  # the product's functions can be looked up only when its settings are

    django.setup()
    fuses = Fuses(Path(directory), die=_die)
    for name, step in STEPS.items():
        if step.process == kind:
            wrap(name, step, fuses)
    _hand_over(command)


def _hand_over(command: Sequence[str]) -> None:
    """Goes on as `python ARGUMENTS` would."""
    if command[0] == "-m":
        sys.argv = list(command[1:])
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(command)
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
