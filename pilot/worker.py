"""What a Celery worker of Pilot has beside its task pool: instance subscriptions, a dispatcher, a heartbeat.

A composition file: it may import the apps. Installed into the worker's blueprint by pilot/celery.py.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from typing import Any

import structlog
from celery import Celery, bootsteps
from celery.signals import task_received, worker_ready, worker_shutting_down
from django.conf import settings
from django.db import close_old_connections
from redis.exceptions import RedisError

from instances.models import Instance, InstanceStatus
from messaging.dispatching import shared_dispatcher
from pilot import maintenance, queues
from pilot.celery import start
from pilot.hearing import Hearing
from pilot.queues import queue_for
from webhooks.sending import shared_sender

log = structlog.get_logger(__name__)

FIXED_QUEUES = ("control", "beat", "health", "webhooks")
HEARTBEAT_SECONDS = 10.0
STUCK_SECONDS = settings.SEND_TIMEOUT_SECONDS + 30.0
STOP_SECONDS = settings.SEND_TIMEOUT_SECONDS + 10.0

# A thread that comes back from the database waits so long at most for one that computes. At Python's 5 ms the eight
# round trips of a claim and a settlement took longer than the work.
SWITCH_SECONDS = 0.0005
LOOK_SECONDS = 0.5  # between looks whether instances opened or closed, however many changed
APPLY_SECONDS = 30.0
# Own queues are listened to again when there are clearly fewer instances than those that made them be shared.
BACK_AT = 0.8
# Longer than anybody takes between asking who is heard and publishing.
LEAVE_SECONDS = 5.0

_stopping = threading.Event()
DEAF = 4  # exit code; the supervisor starts the worker anew


def install(app: Celery) -> None:
    """Adds the consumer step, and hooks our own loops to the worker's life."""
    sys.setswitchinterval(SWITCH_SECONDS)
    app.steps["consumer"].add(InstanceQueues)
    hearing = Hearing(end=_end_deaf)
    task_received.connect(hearing.note, weak=False)
    worker_ready.connect(hearing.start, weak=False)
    worker_ready.connect(_start_sender, weak=False)
    worker_shutting_down.connect(hearing.stop, weak=False)
    worker_shutting_down.connect(_stop_loops, weak=False)
    worker_shutting_down.connect(_stop_maintenance, weak=False)


def base_queues(hostname: str) -> set[str]:
    """What a worker listens to whatever instances there are."""
    return {*FIXED_QUEUES, heartbeat_queue(hostname), *queues.SHARED_QUEUES}


def own_queues() -> set[str]:
    """The own queues of the instances that may send.

    Also of those that are paused: their gate holds, and they go on at once when they are resumed.
    """
    alive = (InstanceStatus.OPEN, InstanceStatus.DEGRADED)
    return {queue_for(key) for key in Instance.objects.filter(status__in=alive).values_list("pk", flat=True)}


def heartbeat_queue(hostname: str) -> str:
    return f"hb.{hostname}"


class InstanceQueues(bootsteps.StartStopStep):
    """Keeps a worker's subscriptions true, at every (re)connection and in a round of its own.

    The wanted set is read in one background thread, so that a slow database never stops the worker; subscriptions
    change only in the consumer's own loop, because kombu is not thread-safe. When a source fails the last set stays.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self.own: set[str] = set()
        self.changes = 0
        self.read_at = -math.inf  # by the monotonic clock, like all times here
        self.leave_at = 0.0  # when own queues are listened to no more; zero while that is not coming
        self.consumer: Any = None
        self.thread: threading.Thread | None = None
        self.applied = threading.Event()

    @property
    def wanted(self) -> set[str]:
        return base_queues(self.consumer.hostname) | self.own

    def start(self, consumer: Any) -> None:
        self.consumer = consumer
        if self.thread is None:
            self._read()  # once: a worker that says "ready" is already subscribed
            self.thread = threading.Thread(target=self._watch, name="instance-queues", daemon=True)
            self.thread.start()
        self._apply()
        self.read_at = -math.inf  # soon: much may have changed while there was no connection
        self.beat = consumer.timer.call_repeatedly(HEARTBEAT_SECONDS, self._send_heartbeat)
        consumer.call_soon(self._send_heartbeat)

    def stop(self, consumer: Any) -> None:
        self.consumer = None
        self.beat.cancel()

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            if self._is_due():
                self._read()
                self._have_applied()

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now > self.read_at + settings.QUEUE_REFRESH.total_seconds() or 0 < self.leave_at < now:
            return True
        try:
            return queues.changes() != self.changes
        except RedisError:
            return False

    def _read(self) -> None:
        self.read_at = time.monotonic()
        try:
            changes = queues.changes()  # before the rows: what changes meanwhile is read again
            self.own = self._choose(own_queues())
            self.changes = changes
        except Exception:
            log.exception("worker.queues_unknown")
        finally:
            close_old_connections()

    def _choose(self, own: set[str]) -> set[str]:
        """The own queues to listen to: all, or none. On the way from all to none, all for a moment longer."""
        heard = queues.own_are_heard()
        if len(own) <= settings.OWN_QUEUES_MOST * (1 if heard else BACK_AT):
            self.leave_at = 0.0
            return own
        if heard:
            queues.say_own_are_left()
            self.leave_at = time.monotonic() + LEAVE_SECONDS
            log.info("worker.queues_shared", instances=len(own))
        if time.monotonic() < self.leave_at:
            return own
        self.leave_at = 0.0
        return set()

    def _have_applied(self) -> None:
        """Has the consumer's loop apply what was read; then others may be told that own queues are heard."""
        consumer, own = self.consumer, self.own
        if consumer is None:
            return
        self.applied.clear()
        consumer.call_soon(self._apply)
        if self.applied.wait(APPLY_SECONDS) and own and not self.leave_at:
            self._tell_others()

    def _tell_others(self) -> None:
        try:
            queues.say_own_are_heard(lasts=3 * settings.QUEUE_REFRESH.total_seconds())
        except RedisError:
            log.warning("worker.redis_away")

    def _apply(self) -> None:
        """Runs in the consumer's loop, with the newest set: calls queue up during an outage and then run in a burst."""
        consumer = self.consumer
        if consumer is None or consumer.task_consumer is None:
            return
        wanted = self.wanted
        current = {queue.name for queue in consumer.task_consumer.queues}
        for name in sorted(current - wanted):
            consumer.cancel_task_queue(name)
        new = sorted(wanted - current)
        for name in new:
            queue = consumer.app.amqp.queues.select_add(name, exchange=name, exchange_type="direct")
            consumer.task_consumer.add_queue(queue)
        if new:
            consumer.task_consumer.consume()
        self.applied.set()
        if new or current - wanted:
            log.info("worker.queues", subscribed=len(wanted), added=len(new))

    def _send_heartbeat(self) -> None:
        """A token through broker, subscription, pool and database: proof that this worker consumes.

        Not sent while dispatcher or sender have work and do not move: a worker that sends nothing is not well.
        """
        consumer = self.consumer
        if consumer is None:
            return
        stuck_for = max(shared_dispatcher().stuck_for(), shared_sender().stuck_for())
        if stuck_for > STUCK_SECONDS:
            log.error("worker.stuck", seconds=stuck_for)
            return
        hostname = consumer.hostname
        detail = {
            "queues": len(consumer.task_consumer.queues),
            "wanted": len(self.wanted),
            "forecast_error_seconds": shared_dispatcher().forecast_error(),
        }
        queue = heartbeat_queue(hostname)
        start("pilot.heartbeat", queue=queue, expires=HEARTBEAT_SECONDS, name=hostname, detail=detail)


def _start_sender(**_kwargs: Any) -> None:
    """At once, and not with the first wake-up: it finds by itself what waits, also while Redis is away."""
    shared_sender()


def _stop_loops(**_kwargs: Any) -> None:
    """Runs in a signal handler, so it only starts the stopping; the process waits for these threads at its end."""
    if _stopping.is_set():
        return
    _stopping.set()
    for loop in (shared_dispatcher(), shared_sender()):
        threading.Thread(target=loop.stop, kwargs={"timeout": STOP_SECONDS}, name="loop-stop").start()


def _stop_maintenance(**_kwargs: Any) -> None:
    maintenance.stop()


def _end_deaf() -> None:
    """Settles what is in flight; the consumer's loop, which may hang, is not asked."""
    maintenance.stop()
    for loop in (shared_dispatcher(), shared_sender()):
        loop.stop(timeout=STOP_SECONDS)
    os._exit(DEAF)
