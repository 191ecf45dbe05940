"""The gate of an instance that failed opens again when the provider says so, and its webhook stays configured."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from instances import connecting, health
from instances.models import Instance, InstanceStatus
from tests.factories import make_tenant
from tests.sandbox.emulator import Emulator
from tests.sandboxes import server_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def instance(sandbox: Emulator, settings: Any) -> Instance:
    """Open in the sandbox, and degraded with us for a minute."""
    settings.EVOLUTION_URL = ""
    server_of(sandbox)
    instance = connecting.create(tenant=make_tenant(), name="loja", now=timezone.now())
    sandbox.do(instance.provider_name, "pair")
    doubtful(instance, InstanceStatus.DEGRADED)
    return instance


def doubtful(instance: Instance, status: str) -> None:
    Instance.objects.filter(pk=instance.pk).update(
        status=status, status_changed_at=timezone.now() - timedelta(minutes=1)
    )


def status_of(instance: Instance) -> str:
    return Instance.objects.get(pk=instance.pk).status


@pytest.mark.parametrize("status", [InstanceStatus.DEGRADED, InstanceStatus.CONNECTING])
def test_opens_an_instance_that_is_connected_again(instance: Instance, status: str) -> None:
    doubtful(instance, status)

    assert health.recheck(now=timezone.now()) == {"open": 1}
    assert status_of(instance) == InstanceStatus.OPEN


def test_does_not_trust_an_open_state_without_a_live_socket(sandbox: Emulator, instance: Instance) -> None:
    sandbox.arm("dead_socket", instance=instance.provider_name)

    health.recheck(now=timezone.now())

    assert status_of(instance) == InstanceStatus.DEGRADED


@pytest.mark.parametrize("gone", ["closed", "deleted"])
def test_closes_an_instance_that_is_gone(sandbox: Emulator, instance: Instance, gone: str) -> None:
    if gone == "closed":
        sandbox.do(instance.provider_name, "state", state="close")
    else:
        Instance.objects.filter(pk=instance.pk).update(provider_name="p-nobody")

    health.recheck(now=timezone.now())

    assert status_of(instance) == InstanceStatus.CLOSED


def test_leaves_an_instance_alone_that_failed_just_now(instance: Instance) -> None:
    Instance.objects.filter(pk=instance.pk).update(status_changed_at=timezone.now())

    assert health.recheck(now=timezone.now()) == {}


def test_repairs_a_webhook_configuration_that_was_wiped(sandbox: Emulator, instance: Instance) -> None:
    sandbox.arm("webhook_config_wiped", instance=instance.provider_name)

    first = health.keep_hooks(now=timezone.now())
    sandbox.disarm()
    second = health.keep_hooks(now=timezone.now())

    assert first == {"repaired": 1}
    assert second in ({"kept": 1}, {"repaired": 1})
    hook = sandbox.api.get(f"/webhook/find/{instance.provider_name}").json()
    assert hook["enabled"]
    assert "/hooks/evolution/" in hook["url"]
