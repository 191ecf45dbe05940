"""The gate of an instance that failed opens again when the provider says so, and its webhook stays configured."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from instances import asking, connecting, health, status
from instances.models import EvolutionServer, Instance, InstanceEvent, InstanceStatus
from instances.providers.evolution import Evolution
from pilot.leases import lease
from tests.factories import NOW, make_instance, make_server, make_tenant
from tests.providers import peer as behaviours
from tests.providers.peer import Behaviour, Peer
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


def doubtful(instance: Instance, state: str) -> None:
    Instance.objects.filter(pk=instance.pk).update(
        status=state, status_changed_at=timezone.now() - timedelta(minutes=1)
    )


def status_of(instance: Instance) -> str:
    return Instance.objects.get(pk=instance.pk).status


@pytest.mark.parametrize("state", [InstanceStatus.DEGRADED, InstanceStatus.CONNECTING])
def test_opens_an_instance_that_is_connected_again(instance: Instance, state: str) -> None:
    doubtful(instance, state)

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


def test_does_not_open_what_was_unlinked_while_it_asked(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unlinked_meanwhile(subjects: asking.Subjects) -> dict[int, str]:
        received = timezone.now() - timedelta(minutes=2)  # by a webhook call that is applied only now
        status.move(instance_id=instance.pk, to="closed", at=received, reason="logged_out")
        return dict.fromkeys(subjects, "open")

    monkeypatch.setattr(asking, "states", unlinked_meanwhile)

    health.recheck(now=timezone.now())

    assert status_of(instance) == InstanceStatus.CLOSED


def test_does_not_open_what_was_unlinked_and_is_being_paired_again(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubtful(instance, InstanceStatus.CONNECTING)

    def paired_meanwhile(subjects: asking.Subjects) -> dict[int, str]:
        for to in ("closed", "connecting"):
            status.move(instance_id=instance.pk, to=to, at=timezone.now())
        return dict.fromkeys(subjects, "open")

    monkeypatch.setattr(asking, "states", paired_meanwhile)

    health.recheck(now=timezone.now())

    assert status_of(instance) == InstanceStatus.CONNECTING


# --- the webhook ---


def hook_of(sandbox: Emulator, instance: Instance) -> dict[str, Any]:
    hook: dict[str, Any] = sandbox.api.get(f"/webhook/find/{instance.provider_name}").json()
    return hook


def kinds() -> list[str]:
    return list(InstanceEvent.objects.order_by("id").values_list("kind", flat=True))


def test_leaves_a_right_webhook_alone(instance: Instance) -> None:
    assert health.keep_hooks(now=timezone.now()) == {"kept": 1}
    assert kinds() == ["created"]


@pytest.mark.parametrize(
    "drift",
    [
        {"enabled": False, "url": "", "events": []},
        {"enabled": True, "url": "http://127.0.0.1:9/elsewhere", "events": list(Evolution.hook_events)},
        {"enabled": True, "url": "", "events": ["SEND_MESSAGE"]},
        {"enabled": True, "url": "", "events": list(Evolution.hook_events), "byEvents": True},
        {"enabled": True, "url": "", "events": list(Evolution.hook_events), "base64": True},
        {"enabled": True, "url": "", "events": list(Evolution.hook_events), "headers": {"X-Old": "1"}},
    ],
)
def test_sets_a_webhook_again_that_drifted(
    sandbox: Emulator, instance: Instance, drift: dict[str, Any]
) -> None:
    right = hook_of(sandbox, instance)
    drift = drift | {"url": drift["url"] or (right["url"] if drift["enabled"] else "")}
    sandbox.api.post(f"/webhook/set/{instance.provider_name}", json={"webhook": drift})

    assert health.keep_hooks(now=timezone.now()) == {"repaired": 1}

    hook = hook_of(sandbox, instance)
    changing = ("updatedAt", "events")
    assert hook | dict.fromkeys(changing) == right | dict.fromkeys(changing)
    assert set(hook["events"]) == set(right["events"])
    assert kinds() == ["created", "hook_repaired"]


def test_repairs_the_webhook_of_one_that_is_being_paired(sandbox: Emulator, instance: Instance) -> None:
    doubtful(instance, InstanceStatus.CONNECTING)
    sandbox.arm("webhook_config_wiped", instance=instance.provider_name)

    assert health.keep_hooks(now=timezone.now()) == {"repaired": 1}


def test_says_how_many_webhooks_it_does_not_know(instance: Instance) -> None:
    EvolutionServer.objects.update(api_key="wrong")

    assert health.keep_hooks(now=timezone.now()) == {"unknown": 1}


def test_repairs_a_webhook_configuration_that_was_wiped(sandbox: Emulator, instance: Instance) -> None:
    sandbox.arm("webhook_config_wiped", instance=instance.provider_name)

    first = health.keep_hooks(now=timezone.now())
    sandbox.disarm()
    second = health.keep_hooks(now=timezone.now())

    assert first == {"repaired": 1}
    assert second in ({"kept": 1}, {"repaired": 1})
    hook = hook_of(sandbox, instance)
    assert hook["enabled"]
    assert "/hooks/evolution/" in hook["url"]


# --- many instances, and servers that hang ---


@pytest.fixture
def hung(peer: Callable[[Behaviour], Peer], monkeypatch: pytest.MonkeyPatch) -> Peer:
    """A server that takes requests and says nothing. Nobody waits long for it here."""
    monkeypatch.setattr(asking, "CALL_SECONDS", 0.3)
    monkeypatch.setattr(asking, "BATCH_SECONDS", 0.6)
    return peer(behaviours.hang)


def degraded(count: int, **fields: Any) -> list[Instance]:
    return [make_instance(status="degraded", **fields) for _ in range(count)]


CHECKS = [health.recheck, health.keep_hooks, health.check]


@pytest.mark.parametrize("check", CHECKS)
def test_asks_many_at_once(hung: Peer, check: Callable[..., dict[str, int]]) -> None:
    degraded(30, server=make_server(url=hung.url))
    started = time.monotonic()

    counts = check(now=NOW)

    assert sum(counts.values()) == 30
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("check", CHECKS)
def test_ends_in_time_and_goes_on_with_the_others_the_next_time(
    hung: Peer, monkeypatch: pytest.MonkeyPatch, check: Callable[..., dict[str, int]]
) -> None:
    monkeypatch.setattr(asking, "BATCH", 2)
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.7)
    monkeypatch.setattr(asking, "RUN_SECONDS", 0.7)  # enough for one batch that gets no answer
    degraded(5, server=make_server(url=hung.url))

    checked = [sum(check(now=NOW + timedelta(minutes=minute)).values()) for minute in range(4)]

    assert checked == [2] * 4
    asked = [request.split(b" ")[1] for request in hung.requests]
    assert len(set(asked)) == 5
    assert set(asked[6:]) <= set(asked[:6])


@pytest.mark.parametrize("check", CHECKS)
def test_only_one_process_checks_at_a_time(hung: Peer, check: Callable[..., dict[str, int]]) -> None:
    degraded(1, server=make_server(url=hung.url))

    with ExitStack() as elsewhere:
        for stamp in ("state", "hook", "health"):
            elsewhere.enter_context(lease(f"instances.{stamp}_checked_at", lasts=timedelta(minutes=1)))
        assert check(now=NOW) == {}
    assert sum(check(now=NOW).values()) == 1


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("trouble", ["key", "credentials", "hook_token", "server", "provider"])
def test_one_instance_in_trouble_does_not_keep_the_others_from_being_checked(
    hung: Peer, check: Callable[..., dict[str, int]], trouble: str
) -> None:
    (bad,) = degraded(1)
    degraded(2, server=make_server(url=hung.url))
    make_trouble(bad, trouble)

    counts = check(now=NOW)

    assert sum(counts.values()) == 3
    assert len({request.split(b" ")[1] for request in hung.requests}) == 2


def make_trouble(instance: Instance, trouble: str) -> None:
    if trouble == "key":
        EvolutionServer.objects.filter(pk=instance.server_id).update(api_key="chave-é")
        return
    if trouble == "provider":
        Instance.objects.filter(pk=instance.pk).update(provider="vanished")
        return
    spoilt = ("instances_evolutionserver", "api_key", instance.server_id)
    if trouble != "server":
        spoilt = ("instances_instance", trouble, instance.pk)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE {} SET {} = 'not a token' WHERE id = %s".format(*spoilt[:2]), [spoilt[2]])
