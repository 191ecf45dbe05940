"""The watch finds what goes wrong while nobody looks, tells it once, and says when it is over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError

from instances.models import Instance, InstanceStatus
from messaging import watching
from messaging.models import FailureCode, Message, MessageEvent, Status
from messaging.status import Move, move
from messaging.tasks import watch as task
from messaging.watching import watch
from pilot import outbox
from pilot.alerts import open_subjects, raise_alert
from pilot.leases import lease
from pilot.models import Alert, StreamPlace
from tests.factories import NOW, make_instance, make_message, make_project

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def _limits(settings: Any) -> None:
    settings.ALERT_QUEUE_LENGTH, settings.ALERT_OLDEST = 10, 30 * MINUTE


def fill(instance: Instance, count: int, **fields: Any) -> None:
    project = make_project(instance.tenant)
    for number in range(count):
        make_message(project, instance, **{"urgent": number % 2 == 0} | fields)


def alerts(kind: str = "queue_too_long") -> list[tuple[str, bool]]:
    rows = Alert.objects.filter(kind=kind).order_by("id")
    return [(alert.subject, alert.recovered_at is None) for alert in rows]


# --- queues -----------------------------------------------------------------------------------------------


def test_tells_once_of_a_queue_that_is_too_long() -> None:
    long, short = make_instance(name="vendas"), make_instance()
    fill(long, 11)
    fill(short, 10)

    assert [watch(now=NOW + number * MINUTE)["queues"] for number in range(3)] == [1, 1, 1]

    alert = Alert.objects.get()
    assert (alert.kind, alert.subject, alert.tenant) == ("queue_too_long", str(long.pk), long.tenant)
    assert alert.detail == {"name": "vendas", "limit": 10}


@pytest.mark.parametrize(("left", "still_open"), [(9, True), (8, False), (0, False)])
def test_a_queue_has_recovered_when_it_is_clearly_shorter(left: int, still_open: bool) -> None:
    instance = make_instance()
    fill(instance, 11)
    watch(now=NOW)

    gone = Message.objects.order_by("id").values_list("pk", flat=True)[: 11 - left]
    Message.objects.filter(pk__in=list(gone)).update(status=Status.CANCELLED)
    watch(now=NOW)

    assert alerts() == [(str(instance.pk), still_open)]


def test_counts_only_what_is_ready() -> None:
    instance = make_instance()
    fill(instance, 11, next_attempt_at=NOW + MINUTE)
    fill(instance, 11, status=Status.SENT)

    assert watch(now=NOW)["queues"] == 0


def test_tells_of_a_message_that_waits_too_long() -> None:
    instance = make_instance(name="vendas")
    fill(instance, 1, created_at=NOW - 29 * MINUTE)
    watch(now=NOW)
    assert not alerts("oldest_too_old")

    watch(now=NOW + 2 * MINUTE)
    assert alerts("oldest_too_old") == [(str(instance.pk), True)]
    assert Alert.objects.get().detail == {"name": "vendas", "minutes": 30}

    Message.objects.update(status=Status.SENT)
    watch(now=NOW + 3 * MINUTE)
    assert alerts("oldest_too_old") == [(str(instance.pk), False)]


def test_a_part_of_a_long_queue_does_not_prove_that_nothing_is_old(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(watching, "SMALLEST_SAMPLE", 3)
    settings.ALERT_QUEUE_LENGTH = 0
    instance = make_instance()
    fill(instance, 1, created_at=NOW - 40 * MINUTE)
    watch(now=NOW)
    Message.objects.update(status=Status.SENT)
    fill(instance, 5)

    watch(now=NOW)
    assert alerts("oldest_too_old") == [(str(instance.pk), True)]

    Message.objects.filter(status=Status.QUEUED).first().delete()  # type: ignore[union-attr]
    Message.objects.filter(status=Status.QUEUED).first().delete()  # type: ignore[union-attr]
    watch(now=NOW)
    assert alerts("oldest_too_old") == [(str(instance.pk), False)]


def test_a_scheduled_message_waits_from_its_time_on() -> None:
    fill(make_instance(), 1, created_at=NOW - 600 * MINUTE, scheduled_at=NOW - 29 * MINUTE)

    assert watch(now=NOW)["queues"] == 0
    assert watch(now=NOW + 2 * MINUTE)["queues"] == 1


def test_says_nothing_of_the_end_of_an_instance_that_was_removed() -> None:
    instance = make_instance()
    fill(instance, 11)
    watch(now=NOW)
    Instance.objects.update(status=InstanceStatus.REMOVED)

    watch(now=NOW)

    assert alerts() == [(str(instance.pk), False)]
    assert not Alert.objects.get().deliveries.filter(notice="recovered").exists()


def test_looks_at_more_instances_than_one_statement_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "INSTANCES_AT_ONCE", 2)
    instances = [make_instance() for _ in range(5)]
    for instance in instances:
        fill(instance, 11)

    assert watch(now=NOW)["queues"] == 5
    assert open_subjects("queue_too_long") == {str(instance.pk) for instance in instances}


def test_a_threshold_of_zero_is_none(settings: Any) -> None:
    fill(make_instance(), 11)
    watch(now=NOW)
    settings.ALERT_QUEUE_LENGTH, settings.ALERT_OLDEST = 0, 0 * MINUTE

    assert watch(now=NOW + 60 * MINUTE)["queues"] == 0
    assert not open_subjects("queue_too_long")


# --- messages that were given up --------------------------------------------------------------------------


def give_up(instance: Instance, *codes: str) -> None:
    """Fails a message for each code, and announces it."""
    for code in codes:
        message = make_message(instance=instance, status=Status.SENDING)
        move(Move(message_id=message.pk, to=Status.FAILED, at=NOW, failure_code=code, detail={"code": code}))
    while outbox.number(MessageEvent):
        pass


EXHAUSTED = FailureCode.ATTEMPTS_EXHAUSTED


def test_tells_of_given_up_messages_once_for_each_instance() -> None:
    watch(now=NOW)
    many, one, other = make_instance(name="vendas"), make_instance(), make_instance()
    give_up(many, EXHAUSTED, EXHAUSTED, FailureCode.EXPIRED)
    give_up(one, EXHAUSTED)
    give_up(other, FailureCode.REJECTED)

    assert watch(now=NOW)["exhausted"] == 3
    assert watch(now=NOW)["exhausted"] == 0

    assert alerts("attempts_exhausted") == [(str(many.pk), True), (str(one.pk), True)]
    assert Alert.objects.get(subject=many.pk).detail == {"name": "vendas", "count": 2}


def test_does_not_tell_what_was_before_the_first_look() -> None:
    give_up(make_instance(), EXHAUSTED)

    assert watch(now=NOW)["exhausted"] == 0


def test_reads_events_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    watch(now=NOW)
    instance = make_instance()
    give_up(instance, *[EXHAUSTED] * 5)
    monkeypatch.setattr(watching, "EVENTS_AT_ONCE", 2)

    assert watching.watch_exhausted(NOW) == 5
    assert StreamPlace.objects.get(pk=watching.PLACE).position == outbox.numbered(MessageEvent)


def test_goes_on_where_it_stopped_when_it_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    watch(now=NOW)
    give_up(make_instance(), EXHAUSTED)

    def die(*_args: Any, **_kwargs: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(watching, "raise_alert", die)
        with pytest.raises(KeyboardInterrupt):
            watching.watch_exhausted(NOW)

    assert watching.watch_exhausted(NOW) == 1
    assert len(alerts("attempts_exhausted")) == 1


def test_has_recovered_after_an_hour_without_another() -> None:
    watch(now=NOW)
    instance = make_instance()
    give_up(instance, EXHAUSTED)
    watch(now=NOW)
    give_up(instance, EXHAUSTED)
    watch(now=NOW + 30 * MINUTE)

    watch(now=NOW + 89 * MINUTE)
    assert alerts("attempts_exhausted") == [(str(instance.pk), True)]

    watch(now=NOW + 90 * MINUTE)
    assert alerts("attempts_exhausted") == [(str(instance.pk), False)]


# --- all together -----------------------------------------------------------------------------------------


def test_one_watches_at_a_time() -> None:
    with lease("messaging.watch", lasts=MINUTE):
        assert task() == {}


def test_a_part_that_fails_keeps_no_other_from_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_now: Any) -> int:
        raise DatabaseError("no")

    monkeypatch.setattr(watching, "PARTS", {"broken": fail, **watching.PARTS})
    fill(make_instance(), 11)

    counts = watch(now=NOW)

    assert (counts["broken"], counts["queues"]) == (0, 1)


def test_wakes_channels_whose_wake_up_was_lost(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    woken: list[Any] = []
    monkeypatch.setattr("pilot.alerts.delivering.wake_alerts", woken.append)
    settings.ALERT_EMAILS = ["ops@example.com"]
    raise_alert("dead_letter", "stream:status", now=NOW)

    assert watch(now=NOW)["woken"] == 1
    assert woken == [["email"]]


def test_a_healthy_installation_costs_few_statements(django_assert_max_num_queries: Any) -> None:
    watch(now=NOW)
    for _ in range(20):
        fill(make_instance(), 1)

    with django_assert_max_num_queries(20):
        watch(now=NOW)
