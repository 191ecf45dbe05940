"""A worker's queues, with a real worker: in step with what is open, and no wake-up lost when they are shared."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from celery import Celery
from django.conf import settings
from django.db import connection
from django.utils import timezone

from instances.models import Instance, InstanceStatus
from instances.status import move
from pilot import celery, queues
from pilot.celery import queues_changed
from pilot.queues import queue_for
from pilot.redis import client
from pilot.worker import base_queues
from tests.factories import make_instance
from tests.product.running import Customer, Product, make_customer
from tests.sandbox.emulator import Emulator, eventually

MOST = 6  # own queues; they are back with 4 instances
HINTED = 6.0  # seconds, with a round of a minute: only a hint is so fast


@pytest.fixture
def product(transactional_db: None, sandbox: Emulator) -> Iterator[Product]:
    """Without beat, so that no pulse makes up for what was lost."""
    env = {"OWN_QUEUES_MOST": str(MOST), "WHATSAPP_QUEUE_WORKER_REFRESH_MS": "60000"}
    product = Product(sandbox, env=env)
    try:
        product.start()
        product.parts["beat"].stop()
        yield product
    finally:
        product.stop()


@pytest.fixture
def customer(product: Product, settings: Any) -> Iterator[Customer]:
    """Of the product, whose Redis is ours, too."""
    settings.REDIS_URL = settings.CELERY_BROKER_URL = product.valkey.url
    _forget_clients()
    customer = make_customer(product, settings)
    yield customer
    customer.api.close()
    _forget_clients()


def _forget_clients() -> None:
    client.cache_clear()
    celery._producers.cache_clear()


def own(product: Product) -> set[str] | None:
    """The own queues that the worker says it listens to; None while it does not answer."""
    probe = Celery("probe", broker=product.valkey.url)
    probe.conf.broker_transport_options = settings.CELERY_BROKER_TRANSPORT_OPTIONS
    with probe:
        answers = probe.control.inspect(timeout=1, limit=1).active_queues()
    names = {queue["name"] for queues in (answers or {}).values() for queue in queues}
    return names - base_queues("w@test") if names else None


def listens_to(product: Product, instances: Sequence[Instance], *, within: float = HINTED) -> None:
    wanted = {queue_for(instance.pk) for instance in instances}
    eventually(lambda: own(product) == wanted, within=within)


def open_more(number: int) -> list[Instance]:
    made = [make_instance() for _ in range(number)]
    queues_changed()
    return made


def close(instance: Instance) -> None:
    assert move(instance_id=instance.pk, to=InstanceStatus.CLOSED, at=timezone.now())


def test_a_workers_queues_are_in_step_with_open_instances(product: Product, customer: Customer) -> None:
    listens_to(product, [customer.instance])

    one, two = open_more(2)
    listens_to(product, [customer.instance, one, two])

    close(one)
    listens_to(product, [customer.instance, two])

    product.parts["worker"].kill()
    product.parts["worker"].start()
    listens_to(product, [customer.instance, two], within=20)

    client().flushall()
    customer.reaches(customer.post("depois").json()["id"], "sent", "delivered", "read", within=5)
    listens_to(product, [customer.instance, two])


def test_no_wake_up_is_lost_while_queues_come_to_be_shared_and_again_not(
    product: Product, customer: Customer
) -> None:
    eventually(queues.own_are_heard, within=HINTED)
    crowd = open_more(MOST + 1)

    for number in range(500):
        sends(customer, str(number))
        if own(product) == set():
            break

    assert own(product) == set()
    assert not queues.own_are_heard()
    sends(customer, "in a shared queue")

    stopping = threading.Event()
    seen: set[bool] = set()
    changing = threading.Thread(target=come_and_go, args=(crowd, stopping, seen))
    changing.start()
    try:
        for number in range(30):
            sends(customer, str(number))
        eventually(lambda: seen == {True, False}, within=20)
    finally:
        stopping.set()
        changing.join()


def sends(customer: Customer, text: str) -> None:
    """Has a message sent before the next is asked for: each has only its own wake-up."""
    key = customer.post(text).json()["id"]
    customer.reaches(key, "submitted", "sent", "delivered", "read", within=5)


def come_and_go(crowd: Sequence[Instance], stopping: threading.Event, seen: set[bool]) -> None:
    """Closes and opens so many instances that the queues are shared half of the time."""
    rows = Instance.objects.filter(pk__in=[instance.pk for instance in crowd])
    for status in itertools.cycle([InstanceStatus.CLOSED, InstanceStatus.OPEN]):
        rows.update(status=status)
        queues_changed()
        if stopping.wait(0.7):
            break
        seen.add(queues.own_are_heard())
    connection.close()
