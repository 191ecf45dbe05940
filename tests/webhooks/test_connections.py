"""News of connections from end to end: WhatsApp drops an instance, its webhooks come, and somebody is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from instances import connecting, following, health
from instances.models import Instance, InstanceEvent, Outage
from pilot.models import Alert
from tests.factories import make_tenant
from tests.sandbox.emulator import Emulator, eventually
from tests.sandboxes import sandbox, sandbox_process, server_of
from webhooks import applying, inbound
from webhooks.models import InboundCall

__all__ = ["sandbox", "sandbox_process"]

MINUTE = timedelta(minutes=1)


@pytest.fixture
def instance(live_server: Any, sandbox: Emulator, settings: Any) -> Iterator[Instance]:
    """Paired; what the sandbox says of it comes to a server of ours."""
    settings.EVOLUTION_URL, settings.PUBLIC_URL = "", live_server.url
    server_of(sandbox)
    instance = connecting.create(tenant=make_tenant(), name="loja", now=timezone.now())
    sandbox.do(instance.provider_name, "pair")
    becomes(instance, "open")
    yield instance
    sandbox.control.post("/reset")  # nothing is posted to a server that is gone


def becomes(instance: Instance, state: str) -> None:
    """Applies what has come until the instance is so."""

    def applied() -> bool:
        applying.apply_pending(now=timezone.now())
        return Instance.objects.get(pk=instance.pk).status == state

    eventually(applied)


def minutes(first: datetime, count: int) -> None:
    """What beat does in so many minutes."""
    for minute in range(count):
        now = first + minute * MINUTE
        health.recheck(now=now)
        following.follow(now=now)


def alerts() -> list[tuple[str, bool]]:
    rows = Alert.objects.order_by("id").values_list("kind", "recovered_at")
    return [(kind, recovered_at is not None) for kind, recovered_at in rows]


def test_one_that_drops_and_reconnects_by_itself_alarms_nobody(sandbox: Emulator, instance: Instance) -> None:
    sandbox.do(instance.provider_name, "disconnect", reason=408, terminal=False)
    eventually(lambda: sandbox.state(instance.provider_name) == "open")
    eventually(lambda: InboundCall.objects.filter(event="connection.update").count() >= 2)

    minutes(timezone.now(), 5)

    becomes(instance, "open")
    assert (Outage.objects.count(), alerts()) == (0, [])


def test_one_that_is_unlinked_is_told_of_once_and_its_return_once(
    sandbox: Emulator, instance: Instance
) -> None:
    sandbox.do(instance.provider_name, "disconnect", reason=401)
    becomes(instance, "closed")

    minutes(timezone.now(), 15)
    assert alerts() == [("instance_down", False)]

    sandbox.do(instance.provider_name, "pair")
    becomes(instance, "open")
    minutes(timezone.now(), 15)

    assert alerts() == [("instance_down", True)]
    assert not Outage.objects.filter(ended_at=None).exists()


def test_a_storm_costs_few_rows_and_no_alert(
    sandbox: Emulator, instance: Instance, counted_posts: Callable[[], int]
) -> None:
    stored, events = InboundCall.objects.count(), InstanceEvent.objects.count()

    sandbox.arm("connecting_storm", instance=instance.provider_name, rate=100.0, seconds=60.0)
    eventually(lambda: counted_posts() >= 50, within=30)
    sandbox.disarm()
    eventually(lambda: sandbox.state(instance.provider_name) == "open")
    becomes(instance, "open")
    minutes(timezone.now(), 5)

    assert InboundCall.objects.count() - stored <= 12  # six a minute, and it may take more than one
    assert InstanceEvent.objects.count() - events <= 2
    assert alerts() == []


@pytest.fixture
def counted_posts(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many calls came to the door, stored or not."""
    known = inbound._store
    came: list[None] = []

    def counted(instance: Instance, body: bytes) -> None:
        came.append(None)
        known(instance, body)

    monkeypatch.setattr(inbound, "_store", counted)
    return lambda: len(came)
