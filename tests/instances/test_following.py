"""The three phases of the health check, against the sandbox: find, restart, ask again and alert once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError
from django.utils import timezone

from instances import asking, connecting, following, health, outages, status
from instances.models import EvolutionServer, Instance, InstanceEvent, InstanceStatus, Outage, Vitals
from instances.providers.base import Call, ConnectionEvent
from pilot.alerts import recover
from pilot.leases import lease
from pilot.models import Alert
from tests.factories import NOW, make_instance, make_server, make_tenant
from tests.providers import peer as behaviours
from tests.providers.peer import Behaviour, Peer
from tests.sandbox.emulator import Emulator, eventually
from tests.sandboxes import server_of

pytestmark = pytest.mark.django_db

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
SLEEP = 2 * MINUTE


@pytest.fixture
def start() -> datetime:
    return timezone.now()


@pytest.fixture
def instance(sandbox: Emulator, settings: Any, start: datetime) -> Instance:
    """Open in the sandbox and with us, for an hour."""
    settings.EVOLUTION_URL = ""
    server_of(sandbox)
    instance = connecting.create(tenant=make_tenant(), name="loja", now=start)
    sandbox.do(instance.provider_name, "pair")
    Instance.objects.filter(pk=instance.pk).update(
        status=InstanceStatus.OPEN, status_changed_at=start - timedelta(hours=1)
    )
    instance.refresh_from_db()
    return instance


def status_of(instance: Instance) -> str:
    return Instance.objects.get(pk=instance.pk).status


def restarts(sandbox: Emulator) -> int:
    return sum(entry["op"] == "instance/restart" for entry in sandbox.requests())


def open_outages() -> list[str]:
    return list(Outage.objects.filter(ended_at=None).values_list("kind", flat=True))


def alerts() -> list[tuple[str, bool]]:
    """Every alert there was: its kind, and whether it is over."""
    rows = Alert.objects.order_by("id").values_list("kind", "recovered_at")
    return [(kind, recovered_at is not None) for kind, recovered_at in rows]


def run_beat(start: datetime, *, minutes: int = 15) -> None:
    """What beat does in so many minutes, in longer steps."""
    for minute in range(minutes):
        now = start + minute * MINUTE
        if minute % 10 == 0:
            health.check(now=now)
        health.recheck(now=now)
        following.follow(now=now)


# --- the four cases ---------------------------------------------------------------------------------------


def test_leaves_a_healthy_instance_alone(sandbox: Emulator, instance: Instance, start: datetime) -> None:
    run_beat(start)

    assert status_of(instance) == InstanceStatus.OPEN
    assert (restarts(sandbox), Outage.objects.count(), alerts()) == (0, 0, [])


def test_closes_one_that_the_provider_does_not_know_without_a_restart(
    sandbox: Emulator, instance: Instance, start: datetime
) -> None:
    sandbox.api.delete(f"/instance/delete/{instance.provider_name}")
    eventually(lambda: sandbox.state(instance.provider_name) is None)

    assert health.check(now=start) == {"instance_removed": 1}
    assert status_of(instance) == InstanceStatus.CLOSED
    run_beat(start)

    assert (restarts(sandbox), alerts()) == (0, [("instance_down", False)])
    assert Outage.objects.get().reason == "instance_removed"


def test_restarts_one_that_dropped_and_alerts_nobody_when_that_helps(
    sandbox: Emulator, instance: Instance, start: datetime
) -> None:
    sandbox.do(instance.provider_name, "state", state="close")

    assert health.check(now=start) == {"closed": 1}
    assert status_of(instance) == InstanceStatus.CLOSED
    assert following.follow(now=start) == {"restarted": 1}
    eventually(lambda: sandbox.state(instance.provider_name) == "open")
    assert following.follow(now=start + SLEEP - timedelta(seconds=1)) == {}
    assert following.follow(now=start + SLEEP) == {"back": 1}
    assert status_of(instance) == InstanceStatus.OPEN
    assert following.follow(now=start + SLEEP + MINUTE) == {"ended": 1}

    assert (open_outages(), alerts()) == ([], [])


def test_tells_once_of_one_that_stays_down_and_once_that_it_is_back(
    sandbox: Emulator, instance: Instance, start: datetime
) -> None:
    sandbox.do(instance.provider_name, "disconnect", reason=401)

    run_beat(start)
    assert alerts() == [("instance_down", False)]
    assert Alert.objects.get().subject == str(instance.pk)
    assert Alert.objects.get().tenant_id == instance.tenant_id

    sandbox.do(instance.provider_name, "pair")
    paired_at = start + 16 * MINUTE
    connecting.apply_connection(instance=instance, event=ConnectionEvent("open"), now=paired_at)
    run_beat(paired_at, minutes=5)

    assert (open_outages(), alerts()) == ([], [("instance_down", True)])
    assert status_of(instance) == InstanceStatus.OPEN


def test_restarts_one_whose_socket_is_dead_though_it_says_open(
    sandbox: Emulator, instance: Instance, start: datetime
) -> None:
    sandbox.arm("dead_socket", instance=instance.provider_name, op="instance/setPresence")

    health.check(now=start)
    assert status_of(instance) == InstanceStatus.DEGRADED
    following.follow(now=start)
    following.follow(now=start + SLEEP)
    assert (restarts(sandbox), alerts()) == (1, [("instance_down", False)])

    sandbox.disarm()
    health.recheck(now=start + 3 * MINUTE)
    following.follow(now=start + 4 * MINUTE)

    assert alerts() == [("instance_down", True)]
    assert restarts(sandbox) == 1


def test_an_alert_that_somebody_ended_is_not_raised_again_in_the_same_outage(
    sandbox: Emulator, instance: Instance, start: datetime
) -> None:
    sandbox.arm("dead_socket", instance=instance.provider_name, op="instance/setPresence")
    health.check(now=start)
    following.follow(now=start)
    following.follow(now=start + SLEEP)
    recover("instance_down", str(instance.pk))

    run_beat(start + 3 * MINUTE)

    assert alerts() == [("instance_down", True)]


# --- when what is due ---


def test_waits_longer_before_each_restart(sandbox: Emulator, instance: Instance, start: datetime) -> None:
    sandbox.arm("dead_socket", instance=instance.provider_name, op="instance/setPresence")

    run_beat(start, minutes=50)

    assert restarts(sandbox) == 3  # at once, and after 10 and 20 minutes more


def test_does_not_restart_one_that_came_back_meanwhile(
    sandbox: Emulator, instance: Instance, start: datetime
) -> None:
    status.move(instance_id=instance.pk, to="degraded", at=start, reason="instance_disconnected")
    connecting.apply_connection(
        instance=instance, event=ConnectionEvent("open"), now=start + timedelta(seconds=9)
    )

    run_beat(start)

    assert (restarts(sandbox), open_outages(), alerts()) == (0, [], [])
    assert Outage.objects.count() == 1


def test_restarts_one_that_failed_a_send_without_waiting_for_the_next_check(
    sandbox: Emulator, instance: Instance, start: datetime
) -> None:
    sandbox.arm("dead_socket", instance=instance.provider_name, op="instance/setPresence")
    status.move(instance_id=instance.pk, to="degraded", at=start, reason="instance_disconnected")

    assert following.follow(now=start + timedelta(seconds=59)) == {}
    assert following.follow(now=start + MINUTE) == {"restarted": 1}


def test_one_that_is_being_paired_is_not_restarted(
    sandbox: Emulator, instance: Instance, start: datetime
) -> None:
    status.move(instance_id=instance.pk, to="degraded", at=start, reason="instance_disconnected")
    Instance.objects.filter(pk=instance.pk).update(status="connecting", qr_code="2@abc")

    following.follow(now=start + MINUTE)

    assert restarts(sandbox) == 0


def test_comes_and_goes_and_is_one_outage_and_one_alert(instance: Instance, start: datetime) -> None:
    for second in range(0, 900, 20):
        now = start + timedelta(seconds=second)
        news = ConnectionEvent(*(("closed", "code_440") if second % 40 else ("open",)))
        connecting.apply_connection(instance=instance, event=news, now=now)
        following.follow(now=now)
    assert (Outage.objects.count(), len(alerts())) == (1, 1)

    ends = start + timedelta(hours=2)
    connecting.apply_connection(instance=instance, event=ConnectionEvent("open"), now=ends)
    following.follow(now=ends)
    following.follow(now=ends + MINUTE)
    following.follow(now=ends + 2 * MINUTE)

    assert (open_outages(), alerts()) == ([], [("instance_down", True)])


def test_what_the_tenant_closes_is_no_outage(sandbox: Emulator, instance: Instance, start: datetime) -> None:
    received = ConnectionEvent("closed", reason="logged_out")  # its webhook is faster than the answer
    connecting.apply_connection(instance=instance, event=received, now=start)

    connecting.logout(instance=instance, now=start)
    run_beat(start)

    assert (open_outages(), alerts()) == ([], [])


def test_an_alert_of_what_the_tenant_closes_ends(
    sandbox: Emulator, instance: Instance, start: datetime
) -> None:
    sandbox.arm("dead_socket", instance=instance.provider_name, op="instance/setPresence")
    health.check(now=start)
    following.follow(now=start)
    following.follow(now=start + SLEEP)

    connecting.remove(instance=instance, now=start + 3 * MINUTE)

    assert (open_outages(), alerts()) == ([], [("instance_down", True)])


def test_an_instance_that_is_removed_has_no_outage(instance: Instance, start: datetime) -> None:
    unlinked = ConnectionEvent("closed", reason="logged_out")  # comes between the steps of a removal
    connecting.apply_connection(instance=instance, event=unlinked, now=start)

    status.move(instance_id=instance.pk, to="removed", at=start)
    run_beat(start)

    assert (open_outages(), alerts()) == ([], [])


def test_restarts_one_of_which_no_outage_is_on_record(
    sandbox: Emulator, instance: Instance, start: datetime
) -> None:
    sandbox.arm("dead_socket", instance=instance.provider_name, op="instance/setPresence")
    Instance.objects.filter(pk=instance.pk).update(status="degraded")

    health.check(now=start)

    assert following.follow(now=start) == {"restarted": 1}


def test_one_whose_phone_was_unlinked_is_told_of_without_a_restart(
    sandbox: Emulator, instance: Instance, start: datetime
) -> None:
    sandbox.do(instance.provider_name, "disconnect", reason=401)
    unlinked = ConnectionEvent("closed", reason="logged_out")
    connecting.apply_connection(instance=instance, event=unlinked, now=start)

    run_beat(start)

    assert (restarts(sandbox), alerts()) == (0, [("instance_down", False)])


# --- servers that fail ---


def test_a_server_that_is_silent_once_is_no_outage(
    sandbox: Emulator, instance: Instance, start: datetime
) -> None:
    EvolutionServer.objects.update(url="http://127.0.0.1:9")
    assert health.check(now=start) == {"provider_unreachable": 1}
    EvolutionServer.objects.update(url=sandbox.url)

    assert status_of(instance) == InstanceStatus.OPEN
    assert following.follow(now=start + SLEEP) == {"back": 1}
    assert following.follow(now=start + SLEEP + MINUTE) == {"ended": 1}
    assert (restarts(sandbox), alerts()) == (0, [])


def test_a_server_that_stays_silent_is_told_of_once_and_its_return_too(
    sandbox: Emulator, instance: Instance, start: datetime
) -> None:
    EvolutionServer.objects.update(url="http://127.0.0.1:9")
    run_beat(start)
    assert (status_of(instance), alerts()) == ("degraded", [("instance_down", False)])

    EvolutionServer.objects.update(url=sandbox.url)
    run_beat(start + 15 * MINUTE, minutes=5)
    assert (status_of(instance), alerts()) == ("open", [("instance_down", True)])


def test_one_that_was_only_doubted_is_restarted_before_anybody_is_alarmed(
    sandbox: Emulator, instance: Instance, start: datetime
) -> None:
    sandbox.arm("dead_socket", instance=instance.provider_name, op="instance/setPresence")
    outages.doubt(instance=instance, reason="unstable", at=start, recheck_at=start + SLEEP)

    assert following.follow(now=start + SLEEP) == {"to_restart": 1}
    assert (status_of(instance), alerts()) == ("degraded", [])
    assert following.follow(now=start + SLEEP + SECOND) == {"restarted": 1}
    assert following.follow(now=start + 2 * SLEEP + SECOND) == {"down": 1}
    assert alerts() == [("instance_down", False)]


# --- many at once ---


def down(count: int, **fields: Any) -> list[Instance]:
    """Instances whose restart is due."""
    made = [make_instance(**fields) for _ in range(count)]
    for instance in made:
        status.move(instance_id=instance.pk, to="degraded", at=NOW - MINUTE, reason="instance_disconnected")
    return made


def test_restarts_so_many_at_once_and_no_more(
    peer: Callable[[Behaviour], Peer], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.HEALTHCHECK_RESTARTS_AT_ONCE = 3
    server = peer(behaviours.answer(b'{"instance": {"state": "open"}}'))
    down(7, server=make_server(url=server.url))
    sizes = []

    def counted(calls: Mapping[int, Call[Any]]) -> Any:
        sizes.append(len(calls))
        return ask(calls)

    ask = asking.ask
    monkeypatch.setattr(asking, "ask", counted)

    assert following.follow(now=NOW) == {"restarted": 7}
    assert [size for size in sizes if size] == [3, 3, 1]
    assert len(server.requests) == 7


def test_follows_in_one_process_at_a_time() -> None:
    down(1)

    with lease("instances.outages", lasts=MINUTE):
        assert following.follow(now=NOW) == {}
    assert sum(following.follow(now=NOW).values()) == 1


def test_a_process_that_dies_while_it_restarts_leaves_the_rest_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    down(1)
    monkeypatch.setattr(following, "_restart", dies)
    with pytest.raises(Dead):
        following.follow(now=NOW)

    assert following.follow(now=NOW + SLEEP) == {"down": 1}
    assert alerts() == [("instance_down", False)]


def test_a_process_that_dies_while_it_asks_again_leaves_it_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    down(1)
    following.follow(now=NOW)
    with monkeypatch.context() as dying:
        dying.setattr(following, "_judge", dies)
        with pytest.raises(Dead):
            following.follow(now=NOW + SLEEP)

    assert following.follow(now=NOW + SLEEP + MINUTE) == {"down": 1}
    assert alerts() == [("instance_down", False)]


class Dead(BaseException):
    """The end of a process, as a test sees it."""


def dies(*_args: Any) -> None:
    raise Dead


def test_one_that_cannot_be_restarted_is_only_asked_again() -> None:
    (instance,) = down(1, provider="meta")

    assert following.follow(now=NOW) == {}

    assert not InstanceEvent.objects.filter(instance=instance, kind="restarted").exists()
    assert Outage.objects.get().recheck_at == NOW + SLEEP


def test_tells_nobody_of_what_was_closed_while_it_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    (instance,) = down(1)
    following.follow(now=NOW)

    def closed_meanwhile(subjects: asking.Subjects) -> dict[int, str]:
        status.move(instance_id=instance.pk, to="closed", at=NOW + SLEEP, reason="logged_out")
        outages.cancel(instance_id=instance.pk, at=NOW + SLEEP)
        return dict.fromkeys(subjects, "closed")

    monkeypatch.setattr(asking, "states", closed_meanwhile)

    following.follow(now=NOW + SLEEP)

    assert (open_outages(), alerts()) == ([], [])


def test_does_not_end_an_outage_of_what_was_lost_again_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would restart it, and nobody would be told: only an outage brings a closed instance back."""
    pair = down(2)
    Outage.objects.update(restart_at=None, alerted_at=NOW)
    Instance.objects.update(status=InstanceStatus.OPEN, status_changed_at=NOW)
    recovered: list[str] = []

    def recover_while_the_other_is_lost(_kind: str, subject: str, **_options: Any) -> bool:
        recovered.append(subject)
        [other] = [each for each in pair if str(each.pk) != subject]
        return status.move(instance_id=other.pk, to="closed", at=NOW + MINUTE, reason="closed")

    monkeypatch.setattr(outages.alerts, "recover", recover_while_the_other_is_lost)

    assert outages.end_those_that_are_over(now=NOW + MINUTE) == 1
    still = Outage.objects.get(ended_at=None)
    assert str(still.instance_id) not in recovered
    assert still.restart_at is not None


def test_ends_an_outage_again_when_the_end_of_its_alert_could_not_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An alert that stays open would keep everybody from being told of the next outage."""
    down(1)
    assert outages.alert(Outage.objects.get(), now=NOW)
    Outage.objects.update(restart_at=None)
    Instance.objects.update(status=InstanceStatus.OPEN, status_changed_at=NOW)

    def broken(*_args: Any, **_options: Any) -> bool:
        raise DatabaseError("cancelled")

    with monkeypatch.context() as broken_once:
        broken_once.setattr("pilot.alerts._recover", broken)
        assert outages.end_those_that_are_over(now=NOW + MINUTE) == 0
    assert outages.end_those_that_are_over(now=NOW + MINUTE) == 1
    assert (open_outages(), alerts()) == ([], [("instance_down", True)])


def test_one_in_trouble_does_not_keep_the_others_from_being_followed() -> None:
    bad, _good = down(2)
    Instance.objects.filter(pk=bad.pk).update(provider="vanished")

    assert following.follow(now=NOW) == {"not_restarted": 1}


# --- one that does not deliver ---


def test_one_that_does_not_deliver_is_over_when_a_receipt_comes_after_the_restart(
    sandbox: Emulator, instance: Instance, start: datetime
) -> None:
    status.move(instance_id=instance.pk, to="degraded", at=start, reason="acks_missing")
    outages.suspect(instance_id=instance.pk, reason="acks_missing", at=start)
    assert open_outages() == ["not_delivering"]

    health.recheck(now=start + MINUTE)
    assert status_of(instance) == InstanceStatus.DEGRADED  # drained until it is restarted
    assert following.follow(now=start + MINUTE) == {"restarted": 1}
    eventually(lambda: sandbox.state(instance.provider_name) == "open")
    assert following.follow(now=start + 3 * MINUTE) == {"back": 1}
    assert (status_of(instance), open_outages()) == ("open", ["not_delivering"])

    Vitals.objects.create(instance=instance, acknowledged_at=start + 2 * MINUTE)
    assert following.follow(now=start + 4 * MINUTE) == {"ended": 1}


def test_sets_the_webhook_of_one_that_reports_nothing_before_it_restarts_it(
    sandbox: Emulator, instance: Instance, start: datetime
) -> None:
    sandbox.arm("webhook_config_wiped", instance=instance.provider_name)
    health.suspect(instance_id=instance.pk, reason="webhooks_silent", evidence={}, now=start)

    following.follow(now=start)

    ops = [entry["op"] for entry in sandbox.requests()]
    assert ops.index("webhook/set") < ops.index("instance/restart")
    assert sandbox.api.get(f"/webhook/find/{instance.provider_name}").json()["enabled"]


def test_says_in_the_history_that_it_restarted(instance: Instance, start: datetime) -> None:
    status.move(instance_id=instance.pk, to="degraded", at=start, reason="instance_disconnected")
    following.follow(now=start + MINUTE)

    restarted = InstanceEvent.objects.get(instance=instance, kind="restarted")
    assert restarted.detail == {"reason": "health_check"}
