"""Creating, pairing, restarting, unlinking and removing instances on a running sandbox."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings

from instances import connecting
from instances.connecting import ConnectingError
from instances.models import EvolutionServer, Instance, InstanceEvent, Lane
from instances.providers.evolution import Evolution
from tests.factories import make_server, make_tenant
from tests.sandbox.emulator import Emulator, eventually
from tests.sandboxes import server_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def server(sandbox: Emulator) -> EvolutionServer:
    return server_of(sandbox)


@pytest.fixture
def instance(server: EvolutionServer, now: datetime) -> Instance:
    """Created, not connected."""
    return connecting.create(tenant=make_tenant(slug="loja-da-ana"), name="vendas", now=now)


def hook_of(sandbox: Emulator, instance: Instance) -> dict[str, Any]:
    hook: dict[str, Any] = sandbox.api.get(f"/webhook/find/{instance.provider_name}").json()
    return hook


def pair_phone(sandbox: Emulator, instance: Instance, now: datetime) -> None:
    """Somebody scans the code; the news reaches us."""
    connecting.pair(instance=instance, now=now)
    sandbox.do(instance.provider_name, "pair")
    connecting.pair(instance=instance, now=now)
    instance.refresh_from_db()
    assert instance.status == "open"


def kinds(instance: Instance) -> list[str]:
    return list(InstanceEvent.objects.filter(instance=instance).order_by("id").values_list("kind", flat=True))


@pytest.fixture
def unreachable() -> EvolutionServer:
    """A server behind a port that refuses."""
    return make_server(url="http://127.0.0.1:9")


# --- creating ---


def test_creates_here_and_at_the_provider(sandbox: Emulator, instance: Instance, now: datetime) -> None:
    assert sandbox.state(instance.provider_name) == "close"
    assert (instance.status, instance.status_reason, instance.created_at) == ("created", "", now)
    assert Lane.objects.get(instance=instance).next_send_at == now
    assert kinds(instance) == ["created"]


def test_names_it_readably_and_never_twice(instance: Instance, now: datetime) -> None:
    tenant = make_tenant(slug="Uma_Loja_com-um-nome-muito-comprido")
    other = connecting.create(tenant=tenant, name="Vendas_do_Sul-e-do-Norte", now=now)

    assert re.fullmatch(r"loja-da-ana-vendas-[0-9a-f]{10}", instance.provider_name)
    assert re.fullmatch(r"uma-loja-com-u-vendas-do-sul-[0-9a-f]{10}", other.provider_name)
    assert len(other.provider_name) <= 40


def test_subscribes_to_events_at_its_secret_address(sandbox: Emulator, instance: Instance) -> None:
    hook = hook_of(sandbox, instance)

    assert hook["url"] == f"{settings.PUBLIC_URL}/hooks/evolution/{instance.hook_token}"
    assert len(instance.hook_token) >= 43
    assert hook["enabled"]
    assert set(hook["events"]) == set(Evolution.hook_events)


def test_refuses_a_name_that_is_taken(instance: Instance, now: datetime) -> None:
    with pytest.raises(connecting.NameTakenError) as raised:
        connecting.create(tenant=instance.tenant, name="vendas", now=now)
    assert raised.value.status == 409
    assert Instance.objects.count() == 1


def test_leaves_a_row_that_says_why_when_the_provider_fails(
    unreachable: EvolutionServer, now: datetime
) -> None:
    instance = connecting.create(tenant=make_tenant(), name="vendas", now=now)

    assert (instance.status, instance.status_reason) == ("created", "provider_unreachable")
    assert kinds(instance) == ["create_failed"]
    with pytest.raises(ConnectingError) as raised:
        connecting.pair(instance=instance, now=now)
    assert (raised.value.code, raised.value.status) == ("provider_unreachable", 502)


def test_creates_what_failed_when_it_is_paired(
    sandbox: Emulator, unreachable: EvolutionServer, now: datetime
) -> None:
    instance = connecting.create(tenant=make_tenant(), name="vendas", now=now)
    Instance.objects.update(server=server_of(sandbox))
    instance = Instance.objects.get()

    connecting.pair(instance=instance, now=now)

    assert sandbox.state(instance.provider_name) == "connecting"
    assert hook_of(sandbox, instance)["enabled"]
    assert kinds(instance) == ["create_failed", "created", "connecting"]


def test_finds_the_instance_whose_creation_got_no_answer(
    sandbox: Emulator, server: EvolutionServer, now: datetime
) -> None:
    sandbox.arm("answer_lost", op="instance/create", times=1)
    instance = connecting.create(tenant=make_tenant(), name="vendas", now=now)
    assert instance.status_reason == "no_answer"

    connecting.pair(instance=instance, now=now)

    assert sandbox.state(instance.provider_name) == "connecting"


def test_sets_the_webhook_of_an_instance_that_was_there_after_all(
    sandbox: Emulator, instance: Instance, now: datetime
) -> None:
    """Its name is ours, so it is ours; but nobody knows with which webhook it was made."""
    off = {"enabled": False, "url": "", "events": []}
    sandbox.api.post(f"/webhook/set/{instance.provider_name}", json={"webhook": off})
    sandbox.arm("error", shape="instance_404", op="instance/connect", times=1)

    connecting.pair(instance=instance, now=now)

    assert hook_of(sandbox, instance)["url"].endswith(instance.hook_token)
    assert sandbox.state(instance.provider_name) == "connecting"


# --- pairing ---


def test_stores_the_code_to_scan(sandbox: Emulator, instance: Instance, now: datetime) -> None:
    pairing = connecting.pair(instance=instance, now=now)

    instance.refresh_from_db()
    assert pairing.qr_code
    assert (instance.status, instance.qr_code) == ("connecting", pairing.qr_code)
    assert instance.qr_expires_at == now + timedelta(seconds=45)
    assert instance.pairing_code == ""


def test_asks_for_a_code_to_type(sandbox: Emulator, instance: Instance, now: datetime) -> None:
    connecting.pair(instance=instance, number="+5511900000001", now=now)

    instance.refresh_from_db()
    assert re.fullmatch(r"[A-Z0-9]{8}", instance.pairing_code)


def test_opens_when_it_was_scanned(sandbox: Emulator, instance: Instance, now: datetime) -> None:
    pair_phone(sandbox, instance, now)

    assert instance.qr_code == ""
    assert kinds(instance) == ["created", "connecting", "open"]


def test_makes_an_instance_again_that_the_provider_lost(
    sandbox: Emulator, instance: Instance, now: datetime
) -> None:
    sandbox.control.post("/reset")

    connecting.pair(instance=instance, now=now)

    assert sandbox.state(instance.provider_name) == "connecting"


# --- restarting and unlinking ---


def test_restarts_an_open_instance(sandbox: Emulator, instance: Instance, now: datetime) -> None:
    pair_phone(sandbox, instance, now)

    connecting.restart(instance=instance, now=now)

    assert kinds(instance)[-1] == "restarted"
    eventually(lambda: sandbox.state(instance.provider_name) == "open")


def test_connects_instead_of_restarting_a_closed_one(
    sandbox: Emulator, instance: Instance, now: datetime
) -> None:
    connecting.restart(instance=instance, now=now)

    instance.refresh_from_db()
    assert instance.status == "connecting"
    assert instance.qr_code


def test_unlinks_the_number(sandbox: Emulator, instance: Instance, now: datetime) -> None:
    pair_phone(sandbox, instance, now)

    connecting.logout(instance=instance, now=now)

    instance.refresh_from_db()
    assert (instance.status, instance.status_reason) == ("closed", "logged_out")
    eventually(lambda: sandbox.state(instance.provider_name) == "close")


def test_unlinks_what_is_not_linked(instance: Instance, now: datetime) -> None:
    connecting.logout(instance=instance, now=now)

    instance.refresh_from_db()
    assert instance.status == "closed"


# --- removing ---


def test_removes_for_good(sandbox: Emulator, instance: Instance, now: datetime) -> None:
    pair_phone(sandbox, instance, now)

    connecting.remove(instance=instance, now=now)

    instance.refresh_from_db()
    assert instance.status == "removed"
    assert sandbox.state(instance.provider_name) is None
    assert connecting.by_hook_token(instance.hook_token) is None


def test_turns_the_webhook_off_before_anything_else(
    sandbox: Emulator, instance: Instance, now: datetime
) -> None:
    """A receiver that fails would hold the deletion up for as long as its delivery is repeated."""
    pair_phone(sandbox, instance, now)
    before = len(sandbox.requests())

    connecting.remove(instance=instance, now=now)

    ops = [entry["op"] for entry in sandbox.requests()[before:]]
    assert ops[:3] == ["webhook/set", "instance/logout", "instance/delete"]
    assert set(ops[3:]) == {"instance/connectionState"}


def test_removes_what_the_provider_no_longer_has(
    sandbox: Emulator, instance: Instance, now: datetime
) -> None:
    sandbox.control.post("/reset")

    connecting.remove(instance=instance, now=now)

    instance.refresh_from_db()
    assert instance.status == "removed"


def test_sends_nothing_while_it_cannot_be_removed(
    sandbox: Emulator, instance: Instance, now: datetime
) -> None:
    pair_phone(sandbox, instance, now)
    EvolutionServer.objects.update(url="http://127.0.0.1:9")
    instance = Instance.objects.get()

    with pytest.raises(ConnectingError):
        connecting.remove(instance=instance, now=now)

    instance.refresh_from_db()
    assert (instance.status, instance.status_reason) == ("closed", "removing")


def test_says_when_the_provider_takes_too_long(
    sandbox: Emulator, instance: Instance, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "GONE_PAUSE", 0)
    monkeypatch.setattr(Evolution, "delete", Evolution.logout)  # a deletion that never happens

    with pytest.raises(connecting.StillThereError):
        connecting.remove(instance=instance, now=now)

    instance.refresh_from_db()
    assert instance.status == "closed"
