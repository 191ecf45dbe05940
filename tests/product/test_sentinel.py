"""The primary behind Sentinel is killed while messages are asked for: none is lost, none goes out twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from messaging.models import Message
from tests.product.running import Customer, Product, make_customer
from tests.sandbox.emulator import Emulator, eventually
from tests.sentinels import Sentinels

OUT = {"submitted", "sent", "delivered", "read"}
CLIENTS = 4
EVERY = 0.2  # seconds between two requests of one client


@pytest.fixture
def product(transactional_db: None, sandbox: Emulator) -> Iterator[Product]:
    product = Product(sandbox, Sentinels)
    try:
        product.start()
        yield product
    finally:
        product.stop()


@pytest.fixture
def customer(product: Product, settings: Any) -> Iterator[Customer]:
    customer = make_customer(product, settings)
    yield customer
    customer.api.close()


class Load:
    """Clients that ask for one message after the other until told to stop."""

    def __init__(self, customer: Customer) -> None:
        self._customer = customer
        self._stopping = threading.Event()
        self.accepted: dict[str, str] = {}
        self.refused: list[str] = []
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, client: int) -> None:
        number = 0
        while not self._stopping.is_set():
            text = f"{client}/{number}"
            answer = self._customer.post(text)
            if answer.status_code == 202:
                self.accepted[answer.json()["id"]] = text
            else:
                self.refused.append(answer.text)
            number += 1
            self._stopping.wait(EVERY)


def test_a_killed_primary_loses_and_doubles_no_message(product: Product, customer: Customer) -> None:
    sentinels: Any = product.valkey
    with Load(customer) as load:
        sends(product, load, more=5)
        sentinels.primary.kill()
        accepted = len(load.accepted)
        eventually(lambda: sentinels.named() == sentinels.replica.port, within=15)
        failed_over = time.monotonic()
        assert len(load.accepted) > accepted  # without a primary
        sends(product, load, more=5)
        took = time.monotonic() - failed_over

    eventually(lambda: not product.revive() and not waiting(load), within=30)
    assert load.refused == []
    assert sorted(sent(product)) == sorted(load.accepted.values())
    assert took < 12, product.logs()


def sends(product: Product, load: Load, *, more: int) -> None:
    """Waits until so many more messages have gone out, and restarts what ended."""
    before = len(sent(product))
    eventually(lambda: not product.revive() and len(sent(product)) >= before + more, within=20)


def waiting(load: Load) -> bool:
    return Message.objects.filter(pk__in=load.accepted).exclude(status__in=OUT).exists()


def sent(product: Product) -> list[str]:
    return [entry["text"] for entry in product.emulator.ledger()]
