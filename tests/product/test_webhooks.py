"""The promise to customers' programs, with real processes: told of everything, whatever Redis or a worker does."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from standardwebhooks import Webhook

from tests.product.running import Customer
from tests.sandbox.emulator import eventually
from tests.webhooks.receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def told(receiver: Receiver, message_id: str) -> list[str]:
    """What the receiver has heard of the message, in its order."""
    events = [json.loads(call.body) for call in receiver.calls]
    return [event["data"]["status"] for event in events if event["data"].get("message_id") == message_id]


@pytest.mark.parametrize("product", [{"env": {"OUTBOUND_NETWORKS": "127.0.0.0/8"}}], indirect=True)
def test_a_program_hears_what_becomes_of_its_messages(customer: Customer, receiver: Receiver) -> None:
    made = customer.api.post("/api/webhooks", json={"url": receiver.url()})
    assert made.status_code == 201, made.text
    expected = ["queued", "submitted", "sent", "delivered", "read"]

    first = customer.post("um").json()["id"]
    eventually(lambda: told(receiver, first) == expected, within=40)
    for call in receiver.calls:
        Webhook(made.json()["secret"]).verify(call.body, call.headers)

    customer.product.valkey.kill()
    second = customer.post("dois").json()["id"]
    eventually(lambda: told(receiver, second) == ["queued"], within=40)
    customer.product.valkey.start()
    customer.product.parts["worker"].kill()
    customer.product.parts["worker"].start()

    eventually(lambda: told(receiver, second)[-1:] == ["read"], within=90)
    assert set(told(receiver, second)) == set(expected)
