"""A message through WhatsApp's Cloud API with real processes, from the request until it was read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.utils import timezone

from instances import linking, meta_apps
from messaging.models import ReceivedMessage
from tests.factories import make_key, make_project
from tests.meta import SECRET
from tests.product.running import Customer, Product
from tests.sandbox.emulator import eventually
from tests.sandbox.graph import GraphAccount

ANA = "+5511999990000"


@pytest.fixture
def world(product: Product, settings: Any) -> Any:
    """A linked number that Ana has written to, and a client of the API."""
    settings.META_GRAPH_URL, settings.PUBLIC_URL = product.emulator.url, product.url
    account = GraphAccount(product.emulator, "11111", business_id="22222")
    project = make_project()
    instance = linking.link_number(
        tenant=project.tenant,
        name="oficial",
        phone_number_id="11111",
        business_id="22222",
        token=account.token,
        app_secret=SECRET,
        now=timezone.now(),
    )
    # The product's processes have no setting of the emulator's address: the account brings its own.
    instance.credentials |= {"host": product.emulator.url}
    instance.save(update_fields=["credentials"])
    callback = meta_apps.callback_of(instance)
    assert callback is not None
    account.change(webhook=callback.url, verify_token=callback.verify_token)
    assert account.do("verify") == {"status": 200, "verified": True}
    account.do("inbound", **{"from": ANA, "text": "oi"})
    eventually(ReceivedMessage.objects.exists, within=20)
    _key, raw = make_key(project, now=timezone.now() - timedelta(minutes=1))
    api = httpx.Client(base_url=product.url, headers={"apikey": raw}, timeout=15)
    yield Customer(product, instance, api)
    api.close()


def test_delivers_and_finds_what_was_lost(world: Customer) -> None:
    emulator = world.product.emulator

    def post(text: str) -> str:
        body = {"to": ANA, "text": text, "instance": "oficial", "skip_opt_in_validation": True}
        answer = world.api.post("/api/messages", json=body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    delivered = world.reaches(post("chegou"), "read")
    assert delivered["provider_message_id"] == emulator.ledger()[0]["key_id"]

    emulator.arm("answer_lost", times=1)
    lost = post("perdida")
    found = world.reaches(lost, "read", within=60)

    assert found["provider_message_id"] == emulator.ledger()[1]["key_id"]
    events = world.api.get(f"/api/messages/{lost}/events").json()["events"]
    assert "unconfirmed" in [event["kind"] for event in events]
    assert [entry["text"] for entry in emulator.ledger()] == ["chegou", "perdida"]
