"""A dead endpoint among healthy ones, and death of the sender: with processes of their own, over real HTTP."""

from __future__ import annotations

import pytest

from pilot.redis import client
from tests.factories import make_tenant
from tests.webhooks import fleet
from tests.webhooks.receiver import Receiver, Reply, eventually
from tests.webhooks.tellings import make_endpoint
from webhooks.models import WebhookDelivery

pytestmark = pytest.mark.usefixtures("transactional_db")


def test_a_dead_endpoint_delays_no_healthy_one() -> None:
    """The long comparison is `python -m tests.webhooks.fleet`; below 0.3 s only the machine's own noise is measured."""
    alone = fleet.run(100, dead=False)
    beside = fleet.run(100, dead=True)

    assert beside.p95 <= 1.5 * max(alone.p95, 0.3)


def test_kill_9_and_a_flushed_redis_lose_nothing(receiver: Receiver) -> None:
    tenant = make_tenant()
    paths = [f"/{number}" for number in range(3)]
    endpoints = [make_endpoint(tenant, url=receiver.url(path)) for path in paths]
    for path in paths:
        receiver.reply(path, Reply(after=0.02))
    happened = {fleet.happen(endpoints[0]) for _number in range(150)}
    everything = {(path, name) for path in paths for name in happened}

    for killed_at in (50, 200):
        with fleet.sending_process() as process:
            eventually(lambda limit=killed_at: len(receiver.calls) >= limit, within=60)
            process.kill()
        client().flushdb()
    with fleet.sending_process():
        eventually(
            lambda: WebhookDelivery.objects.filter(status="delivered").count() == len(everything), within=60
        )

    assert {(call.path, call.id) for call in receiver.calls} == everything
    assert WebhookDelivery.objects.count() == len(everything)
    bodies = {(call.id, call.body) for call in receiver.calls}
    assert len(bodies) == len(happened), "an event is the same at every attempt and endpoint"
    repeated = len(receiver.calls) - len(everything)
    assert repeated <= 2 * 3 * 25, "only what was in flight when it died is repeated"
