"""`manage.py consume [loop …]`: applies inbound calls, announces, counts and tells events, until SIGTERM."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from messaging import announcing, receiving, tallying
from pilot import locks, loops
from pilot.alerts import delivering
from pilot.leading import Leadership
from pilot.vigilance import watch_processes
from webhooks import applying, deliveries, endpoints, fanning

TALLY_SECONDS = 1.0
ALERTS_SECONDS = 15.0


class Command(BaseCommand):
    help = "Runs the consumers: all of them, or those named."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("loops", nargs="*", metavar="loop", help=f"one of: {', '.join(LOOPS)}")

    def handle(self, *args: Any, **options: Any) -> None:
        names = options["loops"] or list(LOOPS)
        loops.run({name: LOOPS[name]() for name in names})


def _inbound() -> Callable[[], int]:
    """Applies what providers posted, then receipts that overtook the answer to their send."""

    def step() -> int:
        now = timezone.now()
        return applying.apply_pending(now=now) + receiving.apply_parked(now=now)

    return step


def _relay() -> Callable[[], int]:
    """Announces events; one process at a time, the others stand by."""
    leadership = Leadership(locks.RELAY)
    return lambda: announcing.relay() if leadership.hold() else 0


def _tally() -> Callable[[], int]:
    """Counts what became of messages; in steps of a second, because each step rewrites the same few rows."""
    due = 0.0

    def step() -> int:
        nonlocal due
        if time.monotonic() < due:
            return 0
        counted = tallying.tally()
        due = time.monotonic() + (TALLY_SECONDS if counted < tallying.BATCH else 0)
        return counted

    return step


def _alerts() -> Callable[[], int]:
    """Tells of workers that do not work, and what they then do not tell. Without Celery, which would need them."""
    due = 0.0

    def step() -> int:
        nonlocal due
        if time.monotonic() < due:
            return 0
        due = time.monotonic() + ALERTS_SECONDS
        now = timezone.now()
        watch_processes(now)
        return delivering.deliver_overdue(now=now)

    return step


def _webhooks() -> Callable[[], int]:
    """Makes deliveries of what happened, and of what somebody ordered once more."""
    return lambda: fanning.fan_out() + deliveries.replay(now=timezone.now()) + endpoints.sweep()


LOOPS: Mapping[str, Callable[[], Callable[[], int]]] = {
    "inbound": _inbound,
    "relay": _relay,
    "tally": _tally,
    "alerts": _alerts,
    "webhooks": _webhooks,
}
