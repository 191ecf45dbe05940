"""`manage.py consume [loop …]`: applies inbound calls and announces events, until SIGTERM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from messaging import announcing, receiving
from pilot import locks, loops
from pilot.leading import Leadership
from webhooks import applying


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


LOOPS: Mapping[str, Callable[[], Callable[[], int]]] = {"inbound": _inbound, "relay": _relay}
