"""Celery carries wake-ups, never work: the application, its queues, THE beat table, and how to wake.

Every function here is best effort and never raises: a wake-up that is lost costs a second, because the pulse finds
what it would have announced.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import structlog
from celery import Celery
from celery.app.amqp import AMQP
from celery.signals import celeryd_init, setup_logging
from django.conf import settings
from django.db import transaction
from kombu import Connection, pools
from kombu.exceptions import KombuError
from kombu.pools import ProducerPool
from redis.exceptions import RedisError

from pilot import queues
from pilot.redis import client

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "pilot.settings")
# A worker or a beat that starts would run Django's checks, and so load every page, form and serializer: 9 MB.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

log = structlog.get_logger(__name__)


class _Connection(Connection):
    """Tries again within two seconds, however long Redis has been away; kombu's pauses grow to thirty."""

    def ensure_connection(self, *args: Any, **kwargs: Any) -> Any:
        pauses = {"interval_start": 0.5, "interval_step": 0.5, "interval_max": 2.0}
        return super().ensure_connection(*args, **pauses | kwargs)


class _Amqp(AMQP):
    Connection = _Connection


app = Celery("pilot", amqp=_Amqp)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.conf.beat_schedule = {
    # `expires`: what could not be run in time is not made up for.
    "pulse": {"task": "messaging.pulse", "schedule": 1.0, "options": {"queue": "beat", "expires": 5}},
    "reconcile-deadlines": {
        "task": "messaging.reconcile_deadlines",
        "schedule": 30.0,
        "options": {"queue": "beat", "expires": 25},
    },
    "resolve-unconfirmed": {
        "task": "messaging.resolve_unconfirmed",
        "schedule": 5.0,
        "options": {"queue": "control", "expires": 5},
    },
    "ask-for-receipts": {
        "task": "messaging.ask_for_receipts",
        "schedule": 15.0,
        "options": {"queue": "health", "expires": 14},
    },
    "reconcile-all": {
        "task": "pilot.reconcile",
        "schedule": settings.MESSAGE_RECONCILER_INTERVAL.total_seconds(),
        "options": {"queue": "health", "expires": settings.MESSAGE_RECONCILER_INTERVAL.total_seconds()},
    },
    "retention": {
        "task": "pilot.retention",
        "schedule": 24 * 3600.0,
        "options": {"queue": "health", "expires": 12 * 3600},
    },
    "watch": {"task": "messaging.watch", "schedule": 60.0, "options": {"queue": "health", "expires": 55}},
    "purge": {"task": "messaging.purge", "schedule": 5.0, "options": {"queue": "control", "expires": 5}},
    "recheck-instances": {
        "task": "instances.recheck",
        "schedule": 30.0,
        "options": {"queue": "health", "expires": 25},
    },
    "check-instances": {
        "task": "instances.check",
        "schedule": 600.0,
        "options": {"queue": "health", "expires": 550},
    },
    "validate-instances": {
        "task": "messaging.validate",
        "schedule": 300.0,
        "options": {"queue": "health", "expires": 250},
    },
    "listen-for-webhooks": {
        "task": "webhooks.listen",
        "schedule": 300.0,
        "options": {"queue": "health", "expires": 250},
    },
    "follow-outages": {
        "task": "instances.follow",
        "schedule": 15.0,
        "options": {"queue": "health", "expires": 14},
    },
    "fetch-templates": {
        "task": "instances.fetch_templates",
        "schedule": 300.0,
        "options": {"queue": "health", "expires": 250},
    },
    "forget-media": {
        "task": "instances.forget_media",
        "schedule": 86_400.0,
        "options": {"queue": "health", "expires": 3600},
    },
    "keep-hooks": {
        "task": "instances.keep_hooks",
        "schedule": 300.0,
        "options": {"queue": "health", "expires": 250},
    },
}

UNREACHABLE = (RedisError, KombuError, OSError)
DOWN_SECONDS = 2.0  # how long to leave Redis alone after it failed
_down_until = 0.0


def wake_all(instance_ids: Sequence[int]) -> int:
    """Wakes many instances; asks for all waiting tokens in one round trip. Returns how many tokens were sent."""
    if not instance_ids or time.monotonic() < _down_until:
        return 0
    try:
        empty = queues.without_token(instance_ids)
        if empty is None:
            return _wake_shared(instance_ids)
        for instance_id in empty:
            _publish("messaging.drain_instance", queues.queue_for(instance_id), instance_id=instance_id)
    except UNREACHABLE as error:
        _note_down(error)
        return 0
    return len(empty)


def wake_in_shards(instance_ids: Sequence[int]) -> int:
    """Wakes many instances through the queues that every worker listens to. Returns how many tokens were sent.

    For the pulse: one token for many instances, and heard whatever is the matter with their own queues.
    """
    if not instance_ids or time.monotonic() < _down_until:
        return 0
    try:
        return _wake_shared(instance_ids)
    except UNREACHABLE as error:
        _note_down(error)
        return 0


def wake_on_commit(*instance_ids: int) -> None:
    """Wakes once the running transaction is committed; other hooks of the transaction are not disturbed."""
    transaction.on_commit(lambda: wake_all(instance_ids), robust=True)


def wake_alerts(channels: Sequence[str]) -> None:
    """Says that notices wait in these channels. The watch finds, each minute, what a lost wake-up left."""
    if time.monotonic() < _down_until:
        return
    try:
        for name in channels:
            _publish("pilot.deliver_alerts", "health", channel=name)
    except UNREACHABLE as error:
        _note_down(error)


def start(task: str, *, queue: str, expires: float | None = None, **kwargs: Any) -> bool:
    """Asks a worker for a task, within `expires` seconds if given. False when Redis is away."""
    try:
        _publish(task, queue, expires=expires, **kwargs)
    except UNREACHABLE as error:
        _note_down(error)
        return False
    return True


def wake_webhooks() -> None:
    """Says that webhook deliveries wait: at most one token waits in their queue. Senders look by themselves, too."""
    if time.monotonic() < _down_until:
        return
    try:
        if not client().llen(queues.broker_key("webhooks")):
            _publish("webhooks.send", "webhooks")
    except UNREACHABLE as error:
        _note_down(error)


def queues_changed() -> None:
    """Hints to all workers that instances opened or closed; they look every half second.

    Not by Celery's remote control, which would hold the caller up until Redis is back.
    """
    if time.monotonic() < _down_until:
        return
    try:
        queues.count_change()
    except UNREACHABLE as error:
        _note_down(error)


def _wake_shared(instance_ids: Sequence[int]) -> int:
    shards = queues.put(instance_ids)
    for shard in shards:
        _publish("messaging.drain_shard", queues.shared_queue(shard), shard=shard)
    return len(shards)


def _publish(task: str, queue: str, *, expires: float | None = None, **kwargs: Any) -> None:
    with _producers().acquire(block=True, timeout=1) as producer:
        app.send_task(task, kwargs=kwargs, queue=queue, expires=expires, producer=producer, retry=False)


@cache
def _producers() -> ProducerPool:
    """Producers of our own: Celery's would hold a request for half a minute."""
    return pools.producers[short_connection()]


def short_connection() -> Connection:
    """A connection to publish on, which waits a second at most and does not try again by itself."""
    short = {"socket_timeout": 1, "socket_connect_timeout": 1, "max_retries": 0}
    options = settings.CELERY_BROKER_TRANSPORT_OPTIONS | short
    return Connection(settings.CELERY_BROKER_URL, transport_options=options)


def _note_down(error: Exception) -> None:
    global _down_until
    _down_until = time.monotonic() + DOWN_SECONDS
    log.warning("wake.failed", error=str(error))


@celeryd_init.connect
def _add_worker_parts(**_kwargs: Any) -> None:
    """Gives a worker process, and no other, its subscriptions and its dispatcher. By name: they stand above us."""
    import_module("pilot.worker").install(app)


@setup_logging.connect
def _leave_logging_alone(**_kwargs: Any) -> None:
    """That somebody listens is enough: else Celery sets the root's level by its own option, over LOG_LEVEL."""
