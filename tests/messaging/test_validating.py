"""An instance that says it is open and does not deliver is noticed, drained, restarted and told of."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from instances import following, health
from instances.models import Instance, InstanceEvent, Lane, Outage, Vitals
from messaging import acknowledging, canaries, validating
from messaging.models import Message, MessageEvent
from pilot.leases import lease
from pilot.models import Alert
from tests.factories import NOW, make_instance, make_message, make_project, make_tenant
from tests.messaging.sends import Sends
from tests.sandbox.emulator import eventually

pytestmark = pytest.mark.django_db

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every instance says that it is open, and has a socket that lives."""
    monkeypatch.setattr(health.asking, "states", lambda subjects: dict.fromkeys(subjects, "open"))


def taken_over(instance: Instance, count: int, *, ago: timedelta = 5 * MINUTE, **fields: Any) -> None:
    """Messages to as many people, of which the provider, asked, knows of no receipt."""
    project = make_project(instance.tenant)
    for number in range(count):
        values = {
            "status": "submitted",
            "submitted_at": NOW - ago,
            "next_attempt_at": NOW + MINUTE,
            "provider_message_id": f"3EB0{instance.pk}{number}",
            "to": f"+55119{number:08d}",
        }
        make_message(project, instance, **values | fields)


def unconfirmed(instance: Instance, count: int, *, ago: timedelta = 5 * MINUTE) -> None:
    project = make_project(instance.tenant)
    for _ in range(count):
        make_message(
            project, instance, status="unconfirmed", attempted_at=NOW - ago, next_attempt_at=NOW + MINUTE
        )


def suspicions() -> list[str]:
    return list(Outage.objects.filter(kind="not_delivering").values_list("reason", flat=True))


def status_of(instance: Instance) -> str:
    return Instance.objects.get(pk=instance.pk).status


# --- from one end to the other ----------------------------------------------------------------------------


def test_says_open_and_delivers_nothing_until_it_is_restarted(sends: Sends, settings: Any) -> None:
    settings.ACKS_MISSING_LEAST = 3
    settings.ACKS_MISSING_AFTER = timedelta(seconds=90)
    instance = sends.instance(status_changed_at=timezone.now() - MINUTE)
    sends.emulator.arm("zombie", instance=instance.provider_name)
    for number in range(3):
        sends.message(instance, to=f"+551190000000{number}")
        sends.run(instance)
    later = timezone.now() + 2 * MINUTE
    acknowledging.ask(now=later)

    assert validating.validate(now=later) == {"open": 1, "acks_missing": 1}

    assert status_of(instance) == "degraded"
    alert = Alert.objects.get()
    assert (alert.kind, alert.subject, alert.recovered_at) == (
        "instance_not_delivering",
        str(instance.pk),
        None,
    )
    waiting = sends.message(instance)
    sends.run(instance)
    waiting.refresh_from_db()
    assert (waiting.status, waiting.attempts, sends.texts()) == ("queued", 0, [])

    restart_and_recheck(sends, instance, later)
    sends.run(instance)
    eventually(lambda: receipts_of(sends, waiting) == "READ")
    acknowledging.ask(now=later + 4 * MINUTE)
    following.follow(now=later + 4 * MINUTE)

    waiting.refresh_from_db()
    assert (waiting.status, status_of(instance), sends.texts()) == ("read", "open", ["Olá"])
    assert (Alert.objects.count(), Alert.objects.filter(recovered_at=None).count()) == (1, 0)


def restart_and_recheck(sends: Sends, instance: Instance, now: datetime) -> None:
    assert following.follow(now=now + SECOND) == {"restarted": 1}
    eventually(lambda: sends.emulator.state(instance.provider_name) == "open")
    assert following.follow(now=now + SECOND + 2 * MINUTE) == {"back": 1}


def receipts_of(sends: Sends, message: Message) -> str:
    message.refresh_from_db()
    entries = [entry for entry in sends.emulator.ledger() if entry["key_id"] == message.provider_message_id]
    return entries[0]["status"] if entries else ""


# --- acknowledgements that are missing ---


@pytest.mark.usefixtures("connected")
def test_suspects_one_whose_messages_nobody_acknowledges() -> None:
    instance = make_instance()
    taken_over(instance, 5)

    assert validating.validate(now=NOW) == {"open": 1, "acks_missing": 1}

    assert (status_of(instance), suspicions()) == ("degraded", ["acks_missing"])
    detail = InstanceEvent.objects.get(instance=instance).detail
    assert detail == {"from": "open", "reason": "acks_missing", "found": 5, "expected": 5}


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize(
    ("count", "fields"),
    [
        pytest.param(0, {}, id="no traffic"),
        pytest.param(4, {}, id="too few"),
        pytest.param(9, {"to": "+5511900000001"}, id="one person's phone is off"),
        pytest.param(9, {"ago": MINUTE}, id="too early"),
        pytest.param(9, {"ago": 3 * timedelta(hours=1)}, id="long ago"),
        pytest.param(9, {"next_attempt_at": NOW - 4 * MINUTE}, id="nobody has asked yet"),
        pytest.param(9, {"next_attempt_at": None}, id="nobody asks any more"),
        pytest.param(9, {"status": "sent"}, id="acknowledged"),
    ],
)
def test_gives_no_false_alarm(count: int, fields: dict[str, Any]) -> None:
    taken_over(make_instance(), count, **fields)

    assert validating.validate(now=NOW) == {"open": 1}
    assert suspicions() == []


@pytest.mark.usefixtures("connected")
def test_suspects_none_whose_provider_keeps_no_connection() -> None:
    instance = make_instance(provider="meta", canary=True, number="+5511900000001")
    judged(instance, sends=5)
    taken_over(instance, 9)
    unconfirmed(instance, 9)

    assert validating.validate(now=NOW) == {"open": 1}


@pytest.mark.usefixtures("connected")
def test_what_was_sent_before_the_last_receipt_does_not_count() -> None:
    instance = make_instance()
    taken_over(instance, 9)
    Vitals.objects.create(instance=instance, acknowledged_at=NOW - 4 * MINUTE)

    assert validating.validate(now=NOW) == {"open": 1}


@pytest.mark.usefixtures("connected")
def test_what_was_sent_before_it_opened_does_not_count() -> None:
    taken_over(make_instance(status_changed_at=NOW - 4 * MINUTE), 9)

    assert validating.validate(now=NOW) == {"open": 1}


@pytest.mark.usefixtures("connected")
def test_suspects_only_the_one_that_does_not_deliver() -> None:
    bad, good, idle = make_instance(), make_instance(), make_instance()
    taken_over(bad, 5)
    taken_over(good, 4)

    validating.validate(now=NOW)

    assert [status_of(each) for each in (bad, good, idle)] == ["degraded", "open", "open"]


@pytest.mark.usefixtures("connected")
def test_one_that_fails_again_after_its_restart_is_told_of_once_and_restarted_later() -> None:
    instance = make_instance()
    taken_over(instance, 5)
    validating.validate(now=NOW)
    Outage.objects.update(restart_at=None, restarted_at=NOW, restarts=1)
    Instance.objects.update(status="open", status_changed_at=NOW + MINUTE)
    again = NOW + 6 * MINUTE
    Message.objects.update(submitted_at=NOW + 2 * MINUTE, next_attempt_at=again + MINUTE)

    validating.validate(now=again)

    outage = Outage.objects.get()
    assert (status_of(instance), outage.restart_at) == ("degraded", NOW + 10 * MINUTE)
    assert Alert.objects.count() == 1


# --- outcomes that nobody knows ---


def judged(instance: Instance, *, sends: int) -> None:
    """It was last judged ten minutes ago, and has sent so many since."""
    Lane.objects.filter(instance=instance).update(sent_on=NOW.date(), sent_count=100 + sends)
    Vitals.objects.create(
        instance=instance, judged_at=NOW - 10 * MINUTE, judged_on=NOW.date(), judged_count=100
    )


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize(
    ("count", "sends", "suspected"), [(5, 10, True), (5, 11, False), (4, 4, False), (6, 0, True)]
)
def test_suspects_one_with_too_many_unknown_outcomes(count: int, sends: int, suspected: bool) -> None:
    instance = make_instance()
    judged(instance, sends=sends)
    unconfirmed(instance, count)

    validating.validate(now=NOW)

    assert suspicions() == ["unconfirmed"] * suspected


@pytest.mark.usefixtures("connected")
def test_begins_a_new_count_when_enough_was_sent() -> None:
    few, enough = make_instance(), make_instance()
    judged(few, sends=9)
    judged(enough, sends=10)

    validating.validate(now=NOW)

    counts = dict(Vitals.objects.values_list("instance", "judged_count"))
    assert counts == {few.pk: 100, enough.pk: 110}


@pytest.mark.usefixtures("connected")
def test_what_was_unknown_before_the_last_judgement_does_not_count() -> None:
    instance = make_instance()
    judged(instance, sends=0)
    unconfirmed(instance, 9, ago=11 * MINUTE)

    assert validating.validate(now=NOW) == {"open": 1}


# --- canaries ---


def with_canary(**fields: Any) -> Instance:
    instance = make_instance(**{"canary": True, "number": "+5511900000001"} | fields)
    make_project(instance.tenant)
    return instance


@pytest.mark.usefixtures("connected")
def test_sends_no_canary_unless_told_to() -> None:
    with_canary(canary=False)

    assert validating.validate(now=NOW) == {"open": 1}
    assert not Message.objects.exists()


@pytest.mark.usefixtures("connected")
def test_sends_itself_a_message_when_it_has_proved_nothing_for_a_while() -> None:
    instance = with_canary()

    assert validating.validate(now=NOW)["canaries"] == 1
    assert validating.validate(now=NOW + 59 * MINUTE).get("canaries", 0) == 0
    message = Message.objects.get()
    assert (message.to, message.source, message.tenant) == (instance.number, "canary", instance.tenant)
    assert MessageEvent.objects.get().kind == "queued"

    assert validating.validate(now=NOW + 61 * MINUTE)["canaries"] == 1


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize(
    "fields", [{"paused": True}, {"number": ""}, {"status": "closed"}], ids=["paused", "no number", "closed"]
)
def test_sends_no_canary_that_could_not_sing(fields: dict[str, Any]) -> None:
    with_canary(**fields)

    assert canaries.send(now=NOW) == 0


def test_needs_no_canary_while_it_delivers() -> None:
    Vitals.objects.create(instance=with_canary(), acknowledged_at=NOW - MINUTE)

    assert canaries.send(now=NOW) == 0


def test_a_tenant_without_a_project_has_no_canary() -> None:
    make_instance(make_tenant(), canary=True, number="+5511900000001")

    assert canaries.send(now=NOW) == 0


def test_all_instances_may_have_canaries_to_a_number_of_ours(settings: Any) -> None:
    settings.CANARY, settings.CANARY_NUMBER = True, "+5511999999999"
    with_canary(canary=False, number="")

    canaries.send(now=NOW)

    assert Message.objects.get().to == "+5511999999999"


@pytest.mark.usefixtures("connected")
def test_suspects_one_whose_canary_did_not_arrive() -> None:
    instance = with_canary()
    canaries.send(now=NOW - 5 * MINUTE)
    asked = {"next_attempt_at": NOW + MINUTE, "submitted_at": NOW - 4 * MINUTE}
    Message.objects.update(status="submitted", **asked)

    validating.validate(now=NOW)

    assert (status_of(instance), suspicions()) == ("degraded", ["canary_lost"])


def test_a_restart_is_tried_with_a_canary_at_once() -> None:
    instance = with_canary()
    Vitals.objects.create(instance=instance, canary_at=NOW - 10 * MINUTE)
    Outage.objects.create(
        instance=instance, kind="not_delivering", began_at=NOW - 5 * MINUTE, restarted_at=NOW - MINUTE
    )

    assert (canaries.send(now=NOW), canaries.send(now=NOW + MINUTE)) == (1, 0)


@pytest.mark.usefixtures("connected")
def test_one_run_at_a_time() -> None:
    taken_over(make_instance(), 5)

    with lease("messaging.validate", lasts=MINUTE):
        assert validating.validate(now=NOW) == {}


def test_also_finds_one_that_is_not_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health.asking, "states", lambda subjects: dict.fromkeys(subjects, "closed"))
    instance = make_instance()

    assert validating.validate(now=NOW) == {"closed": 1}
    assert status_of(instance) == "closed"
    assert Outage.objects.get().restart_at == NOW
