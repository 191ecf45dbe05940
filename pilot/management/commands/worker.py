"""`manage.py worker`: sends messages, delivers webhooks and does what beat asks for, until SIGTERM.

The same worker as `celery -A pilot worker -P threads`, without Celery's command line, which alone takes 10 MB.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from pilot.celery import app


class Command(BaseCommand):
    help = "Runs a worker. Start one or two for each processor core."
    requires_system_checks: list[str] = []  # they would load every page

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--name", default=f"worker1@{socket.gethostname()}", help="no two workers have the same"
        )
        parser.add_argument(
            "--threads", type=int, default=16, help="tasks at once; messages are sent apart from them"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        worker = app.Worker(
            hostname=options["name"],
            pool_cls="threads",
            concurrency=options["threads"],
            queues="control",  # the worker adds the others by itself
            without_gossip=True,
            without_mingle=True,
        )
        worker.start()
        sys.exit(worker.exitcode)
