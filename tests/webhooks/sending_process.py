"""`python -m tests.webhooks.sending_process`: a process that fans out and delivers, to be killed."""

from __future__ import annotations

import threading
from datetime import timedelta

import django


def main() -> None:
    django.setup()
    from django.conf import settings

    from pilot import loops
    from webhooks import claiming, fanning, sending
    from webhooks.sending import Sender

    settings.WEBHOOK_TIMEOUT_SECONDS = 2
    claiming.LEASE_MARGIN = timedelta(seconds=1)
    sending.RELEASE_SECONDS = 0.5
    sender = Sender(in_flight=settings.WEBHOOKS_IN_FLIGHT)

    def step() -> int:
        passed_on = fanning.fan_out()
        if passed_on:
            sender.wake()  # in place of the token that a worker gets
        return passed_on

    sender.start()
    loops.Loop("webhooks", step, threading.Event()).thread.start()


if __name__ == "__main__":
    main()
