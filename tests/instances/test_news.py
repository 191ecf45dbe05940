"""What the provider says of an instance's connection, applied in any order and number."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from instances import connecting
from instances.connecting import apply_connection
from instances.models import Instance, InstanceEvent
from instances.providers.base import ConnectionEvent, Pairing
from tests.factories import make_instance

pytestmark = pytest.mark.django_db

OPEN = ConnectionEvent(
    "open", owner_id="5511900000001@s.whatsapp.net", number="+5511900000001", profile_name="Loja"
)
CONNECTING = ConnectionEvent("connecting")
LOGGED_OUT = ConnectionEvent("closed", reason="logged_out")
QR = Pairing("2@abc", "ABCD1234", 1)


def tell(instance: Instance, *events: ConnectionEvent | Pairing, now: datetime) -> list[bool]:
    changed = [apply_connection(instance=instance, event=event, now=now) for event in events]
    instance.refresh_from_db()
    return changed


def codes(instance: Instance) -> tuple[Any, ...]:
    return instance.qr_code, instance.pairing_code, instance.qr_count, instance.qr_expires_at


def test_opens_and_learns_who_it_is(now: datetime) -> None:
    instance = make_instance(status="created")

    assert tell(instance, QR, OPEN, now=now) == [True, True]
    assert instance.status == "open"
    assert (instance.number, instance.owner_id) == ("+5511900000001", "5511900000001@s.whatsapp.net")
    assert instance.profile_name == "Loja"
    assert codes(instance) == ("", "", 0, None)
    assert InstanceEvent.objects.latest("id").detail == {"from": "connecting", "number": "+5511900000001"}


def test_keeps_what_it_knows_where_the_news_says_nothing(now: datetime) -> None:
    instance = make_instance(status="closed", number="+5511900000001", profile_name="Loja")

    tell(instance, ConnectionEvent("open"), now=now)

    assert (instance.status, instance.number, instance.profile_name) == ("open", "+5511900000001", "Loja")


def test_learns_a_new_number_while_open(now: datetime) -> None:
    instance = make_instance(number="+5511900000009")

    assert tell(instance, OPEN, now=now) == [False]
    assert instance.number == "+5511900000001"


def test_stores_the_code_for_as_long_as_it_lives(now: datetime) -> None:
    instance = make_instance(status="created")

    tell(instance, QR, now=now)

    assert instance.status == "connecting"
    assert codes(instance) == ("2@abc", "ABCD1234", 1, now + timedelta(seconds=45))


def test_does_not_lengthen_the_life_of_a_code(now: datetime) -> None:
    instance = make_instance(status="created")

    tell(instance, QR, now=now)
    tell(instance, QR, now=now + timedelta(seconds=30))
    assert instance.qr_expires_at == now + timedelta(seconds=45)

    tell(instance, Pairing("2@def"), now=now + timedelta(seconds=45))
    assert codes(instance) == ("2@def", "", 2, now + timedelta(seconds=90))


def test_waits_for_the_code_where_there_is_none_yet(now: datetime) -> None:
    instance = make_instance(status="closed")

    tell(instance, Pairing(), now=now)

    assert (instance.status, instance.qr_code) == ("connecting", "")


def test_ignores_a_late_code_of_an_open_instance(now: datetime) -> None:
    instance = make_instance()

    assert tell(instance, QR, now=now) == [False]
    assert (instance.status, instance.qr_code) == ("open", "")


def test_takes_an_instance_that_is_open_already_for_open(now: datetime) -> None:
    instance = make_instance(status="connecting")

    tell(instance, Pairing(already_open=True), now=now)

    assert instance.status == "open"


def test_closes_when_no_more_codes_come(now: datetime) -> None:
    instance = make_instance(status="created")

    tell(instance, QR, Pairing(exhausted=True), now=now)

    assert (instance.status, instance.status_reason) == ("closed", "pairing_expired")
    assert codes(instance) == ("", "", 0, None)


def test_closes_once_however_often_it_hears_of_it(now: datetime) -> None:
    instance = make_instance()

    assert tell(instance, LOGGED_OUT, LOGGED_OUT, LOGGED_OUT, now=now) == [True, False, False]
    assert (instance.status, instance.status_reason) == ("closed", "logged_out")
    assert InstanceEvent.objects.count() == 1


def test_collapses_a_storm_of_connecting(now: datetime) -> None:
    instance = make_instance(status="closed")

    assert sum(tell(instance, *[CONNECTING] * 16, now=now)) == 1
    assert InstanceEvent.objects.count() == 1


def test_stays_open_when_connecting_comes_late(now: datetime) -> None:
    instance = make_instance(status="connecting")

    tell(instance, OPEN, CONNECTING, now=now)

    assert instance.status == "open"


def test_recovers_from_degraded(now: datetime) -> None:
    instance = make_instance(status="degraded")

    assert tell(instance, CONNECTING, OPEN, now=now) == [True, True]
    assert instance.status == "open"


def test_can_be_connected_again_after_the_provider_lost_it(now: datetime) -> None:
    instance = make_instance()

    tell(instance, ConnectionEvent("removed"), now=now)
    assert (instance.status, instance.status_reason) == ("closed", "removed_at_provider")

    tell(instance, QR, now=now)
    assert instance.status == "connecting"


@pytest.mark.parametrize("event", [OPEN, CONNECTING, LOGGED_OUT, QR, ConnectionEvent("removed")])
def test_never_revives_a_removed_instance(event: ConnectionEvent | Pairing, now: datetime) -> None:
    instance = make_instance(status="removed")

    assert tell(instance, event, now=now) == [False]
    assert (instance.status, instance.qr_code) == ("removed", "")


# --- whose webhook it is ---


def test_knows_an_instance_by_its_secret() -> None:
    instance, _other = make_instance(), make_instance()

    assert connecting.by_hook_token(instance.hook_token) == instance


@pytest.mark.parametrize("token", ["", "wrong", "x" * 10_000, "hook-1\x00", "ação"])
def test_knows_nobody_by_another_secret(token: str) -> None:
    make_instance()

    assert connecting.by_hook_token(token) is None


def test_knows_no_removed_instance() -> None:
    instance = make_instance(status="removed")

    assert connecting.by_hook_token(instance.hook_token) is None
