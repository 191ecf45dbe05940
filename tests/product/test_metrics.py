"""/metrics of the whole product: right, whichever process answers."""

from __future__ import annotations

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families as families

from tests.product.running import Customer, Product
from tests.sandbox.emulator import eventually

SENT = 20
ACCEPTED_THE_SHORT_WAY = ("pilot_express_seconds_count", "202")


def _scrape(product: Product) -> dict[tuple[str, ...], float]:
    """By name and label values; over a connection of its own, so that either process may answer."""
    text = httpx.get(f"{product.url}/metrics", timeout=10).raise_for_status().text
    return {
        (sample.name, *(value for _label, value in sorted(sample.labels.items()))): sample.value
        for family in families(text)
        for sample in family.samples
    }


def _post(customer: Customer, number: int) -> None:
    body = {"to": "+5511999990000", "text": f"mensagem {number}", "category": "utility"}
    answer = httpx.post(f"{customer.product.url}/api/messages", json=body, headers=customer.api.headers)
    assert answer.status_code == 202, answer.text


@pytest.mark.parametrize("product", [{"webs": 2}], indirect=True)
def test_adds_up_over_two_web_processes_and_a_worker(product: Product, customer: Customer) -> None:
    for number in range(SENT):
        _post(customer, number)

    delivered = ("pilot_messages_delivered_total", "utility", "live")
    eventually(lambda: _scrape(product).get(delivered) == SENT, within=60)

    for found in [_scrape(product) for _time in range(8)]:
        for step in ("accepted", "sent", "delivered"):
            assert found[f"pilot_messages_{step}_total", "utility", "live"] == SENT
        assert found["pilot_accepted_to_sent_seconds_count", "utility"] == SENT
        assert found[ACCEPTED_THE_SHORT_WAY] == SENT
        assert found["pilot_queue_ready",] == found["pilot_parts_missing",] == 0
    processes = {path.stem.rpartition("_")[2] for path in product.metrics.glob("counter_*.db")}
    assert len(processes) >= 2
