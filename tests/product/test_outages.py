"""The promise with real processes: Redis and workers may vanish, and a message still goes out, once."""

from __future__ import annotations

import time

from launcher.processes import Process

from tests.product.running import Customer, Product
from tests.sandbox.emulator import eventually


def texts(customer: Customer) -> list[str]:
    return [entry["text"] for entry in customer.product.emulator.ledger()]


def test_pf_01_accepts_without_redis_and_sends_by_itself_when_it_is_back_empty(customer: Customer) -> None:
    """PF-01 of the first system: Redis was the only place that knew what was to be sent."""
    customer.product.valkey.stop()

    started = time.monotonic()
    answers = [customer.post(f"sem redis {number}") for number in range(3)]
    took = time.monotonic() - started
    assert [answer.status_code for answer in answers] == [202, 202, 202], customer.product.logs()
    assert took < 5
    customer.product.valkey.start()

    for answer in answers:
        customer.reaches(answer.json()["id"], "submitted", "sent", "delivered", "read", within=60)
    assert sorted(texts(customer)) == [f"sem redis {number}" for number in range(3)]


def test_a_flushed_redis_delays_a_message_by_seconds_only(customer: Customer) -> None:
    customer.reaches(customer.post("antes").json()["id"], "read")
    customer.product.valkey.kill()
    customer.product.valkey.start()

    sent = customer.post("depois").json()["id"]

    customer.reaches(sent, "read", within=60)
    assert texts(customer) == ["antes", "depois"]


def test_pf_02_a_worker_killed_in_the_middle_of_a_send_does_not_send_twice(customer: Customer) -> None:
    """PF-02: a lock that expired let a second worker send again what the first had sent."""
    customer.product.emulator.arm("latency", seconds=3, times=1)
    sent = customer.post("uma vez").json()["id"]
    customer.reaches(sent, "sending")
    eventually(lambda: customer.product.emulator.requests())
    _restart(customer.product, "worker")

    eventually(lambda: texts(customer) == ["uma vez"], within=20)
    customer.reaches(sent, "submitted", "sent", "delivered", "read", within=90)

    assert texts(customer) == ["uma vez"]


def _restart(product: Product, name: str) -> None:
    part: Process = product.parts[name]
    part.kill()
    part.start()
