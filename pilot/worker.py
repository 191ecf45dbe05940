"""What a Celery worker of Pilot has beside its task pool: instance subscriptions, a dispatcher, a heartbeat.

A composition file: it may import the apps. Installed into the worker's blueprint by pilot/celery.py.
"""

from __future__ import annotations

import threading
from typing import Any

import structlog
from celery import Celery, bootsteps
from celery.signals import worker_ready, worker_shutting_down
from celery.worker.control import control_command
from django.conf import settings
from django.db import close_old_connections

from instances.models import Instance, InstanceStatus
from messaging.dispatching import shared_dispatcher
from pilot import maintenance
from pilot.celery import queue_for
from webhooks.sending import shared_sender

log = structlog.get_logger(__name__)

FIXED_QUEUES = ("control", "beat", "health", "webhooks")
HEARTBEAT_SECONDS = 10.0
STUCK_SECONDS = settings.SEND_TIMEOUT_SECONDS + 30.0
STOP_SECONDS = settings.SEND_TIMEOUT_SECONDS + 10.0

_refresh = threading.Event()


def install(app: Celery) -> None:
    """Adds the consumer steps and hooks our own loops to the worker's life."""
    app.steps["consumer"].add(InstanceQueues)
    worker_ready.connect(_start_sender, weak=False)
    worker_shutting_down.connect(_stop_loops, weak=False)
    worker_shutting_down.connect(_stop_maintenance, weak=False)


def wanted_queues(hostname: str) -> set[str]:
    """The queues that a worker should consume now: its own, the fixed ones, and one for each open instance.

    Also of those that are paused: their gate holds, and they go on at once when they are resumed.
    """
    alive = (InstanceStatus.OPEN, InstanceStatus.DEGRADED)
    ids = Instance.objects.filter(status__in=alive).values_list("pk", flat=True)
    return {queue_for(key) for key in ids} | set(FIXED_QUEUES) | {heartbeat_queue(hostname)}


def heartbeat_queue(hostname: str) -> str:
    return f"hb.{hostname}"


class InstanceQueues(bootsteps.StartStopStep):
    """Keeps a worker's subscriptions true, at every (re)connection and in a round of its own.

    The wanted set is read in one background thread, so that a slow database never stops the worker; subscriptions
    change only in the consumer's own loop, because kombu is not thread-safe. When the source fails the last set stays.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self.wanted: set[str] = set()
        self.consumer: Any = None
        self.thread: threading.Thread | None = None

    def start(self, consumer: Any) -> None:
        self.consumer = consumer
        if not self.wanted:
            self._read()  # once: a worker that says "ready" is already subscribed
        self._apply()
        if self.thread is None:
            self.thread = threading.Thread(target=self._watch, name="instance-queues", daemon=True)
            self.thread.start()
        self.beat = consumer.timer.call_repeatedly(HEARTBEAT_SECONDS, self._send_heartbeat)
        consumer.call_soon(self._send_heartbeat)

    def stop(self, consumer: Any) -> None:
        self.consumer = None
        self.beat.cancel()

    def _watch(self) -> None:
        while True:
            self._read()
            if consumer := self.consumer:
                consumer.call_soon(self._apply)
            _refresh.wait(settings.QUEUE_REFRESH.total_seconds())
            _refresh.clear()

    def _read(self) -> None:
        try:
            self.wanted = wanted_queues(self.consumer.hostname) if self.consumer else self.wanted
        except Exception:
            log.exception("worker.queues_unknown")
        finally:
            close_old_connections()

    def _apply(self) -> None:
        """Runs in the consumer's loop, with the newest set: calls queue up during an outage and then run in a burst."""
        consumer = self.consumer
        if consumer is None or not self.wanted or consumer.task_consumer is None:
            return
        current = {queue.name for queue in consumer.task_consumer.queues}
        for name in sorted(current - self.wanted):
            consumer.cancel_task_queue(name)
        new = sorted(self.wanted - current)
        for name in new:
            queue = consumer.app.amqp.queues.select_add(name, exchange=name, exchange_type="direct")
            consumer.task_consumer.add_queue(queue)
        if new:
            consumer.task_consumer.consume()
        if new or current - self.wanted:
            log.info("worker.queues", subscribed=len(self.wanted), added=len(new))

    def _send_heartbeat(self) -> None:
        """A token through broker, subscription, pool and database: proof that this worker consumes.

        Not sent while the dispatcher has work and does not move: a worker that sends nothing is not well.
        """
        if shared_dispatcher().stuck_for() > STUCK_SECONDS:
            log.error("worker.dispatcher_stuck", seconds=shared_dispatcher().stuck_for())
            return
        hostname = self.consumer.hostname
        detail = {
            "queues": len(self.consumer.task_consumer.queues),
            "wanted": len(self.wanted),
            "forecast_error_seconds": shared_dispatcher().forecast_error(),
        }
        self.consumer.app.send_task(
            "pilot.heartbeat",
            kwargs={"name": hostname, "detail": detail},
            queue=heartbeat_queue(hostname),
            expires=HEARTBEAT_SECONDS,
            retry=False,
        )


@control_command()
def queues_changed(state: Any) -> dict[str, str]:
    """The hint of pilot.celery.queues_changed(), heard by every worker."""
    _refresh.set()
    return {"ok": "refreshing"}


def _start_sender(**_kwargs: Any) -> None:
    """At once, and not with the first wake-up: it finds by itself what waits, also while Redis is away."""
    shared_sender()


def _stop_loops(**_kwargs: Any) -> None:
    """Runs in a signal handler, so it only starts the stopping; the process waits for these threads at its end."""
    for loop in (shared_dispatcher(), shared_sender()):
        threading.Thread(target=loop.stop, kwargs={"timeout": STOP_SECONDS}, name="loop-stop").start()


def _stop_maintenance(**_kwargs: Any) -> None:
    maintenance.stop()
