"""A process that lives and does not move is told of, and so is what it then does not do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from pilot import vigilance
from pilot.alerts import delivering, open_subjects, raise_alert
from pilot.alerts.delivering import OVERDUE, deliver_overdue
from pilot.health import STALE
from pilot.management.commands.consume import LOOPS
from pilot.models import Alert, AlertDelivery, Heartbeat
from pilot.vigilance import watch_processes
from tests.factories import NOW
from tests.providers.peer import answer

pytestmark = pytest.mark.django_db

KINDS = ("worker_not_consuming", "consumer_not_consuming", "beat_not_ticking")


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vigilance, "_started", vigilance._started - vigilance.SETTLED_SECONDS)


def beats(now: datetime, **ages: float) -> None:
    """Heartbeats by process, so many seconds old: worker_1 is worker1, consume_inbound_a is a loop of host a."""
    for process, age in ages.items():
        kind, *rest = process.split("_")
        name = f"consume.{rest[0]}@{rest[1]}" if kind == "consume" else "@".join([kind, *rest])
        at = now - timedelta(seconds=age)
        Heartbeat.objects.update_or_create(pk=name, defaults={"kind": kind, "progressed_at": at})


def open_alerts() -> set[tuple[str, str]]:
    return {(kind, subject) for kind in KINDS for subject in open_subjects(kind)}  # type: ignore[arg-type]


def test_says_nothing_while_one_of_each_moves() -> None:
    beats(NOW, worker_1=5, worker_2=500, beat=1, consume_inbound_a=500, consume_inbound_b=3)

    assert watch_processes(NOW) == 0
    assert not open_alerts()


def test_tells_when_none_moves_and_when_one_does_again() -> None:
    beats(NOW, worker_1=200, worker_2=500, beat=200, consume_inbound_a=200, consume_relay_a=1)

    assert watch_processes(NOW) == watch_processes(NOW) == 3
    assert open_alerts() == {
        ("worker_not_consuming", "worker"),
        ("beat_not_ticking", "beat"),
        ("consumer_not_consuming", "consume.inbound"),
    }
    assert Alert.objects.get(kind="worker_not_consuming").detail == {"name": "worker", "minutes": 3}

    beats(NOW, worker_2=1, beat=1, consume_inbound_b=1)
    assert watch_processes(NOW) == 0
    assert not open_alerts()


def test_does_not_judge_by_what_was_before_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vigilance, "_started", vigilance._started + vigilance.SETTLED_SECONDS)
    beats(NOW, worker_1=200)

    assert watch_processes(NOW) == 0


def test_forgets_what_was_taken_out_of_service(settings: Any) -> None:
    settings.ALERT_EMAILS = ["ops@example.com"]
    beats(NOW, consume_inbound_a=200)
    watch_processes(NOW)

    watch_processes(NOW + timedelta(days=2))

    assert not open_alerts()
    assert not AlertDelivery.objects.filter(notice="recovered")


@pytest.mark.django_db(transaction=True)
def test_tells_without_any_worker_what_a_worker_should_have_told(peer: Any, settings: Any) -> None:
    server = peer(answer(b"{}"))
    settings.PUSHOVER_URL, settings.PUSHOVER_TOKEN, settings.PUSHOVER_USER = server.url, "t", "u"
    settings.ALERT_EMAILS = ["ops@example.com"]
    raise_alert("instance_down", 7)
    now = timezone.now()

    assert deliver_overdue(now=now) == 0
    assert deliver_overdue(now=now + OVERDUE) == 2
    assert len(server.requests) == 1
    assert set(AlertDelivery.objects.values_list("state", flat=True)) == {"delivered"}


@pytest.mark.django_db(transaction=True)
def test_a_consumer_that_tells_much_is_not_taken_for_one_that_stands_still(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Its heartbeat comes after each step: fifty notices of four seconds each are told in many."""
    settings.ALERT_EMAILS = [f"ops{number}@example.com" for number in range(50)]
    raise_alert("instance_down", 7)
    seconds = [0.0]

    def slow(deliveries: Sequence[AlertDelivery]) -> None:
        seconds[0] += 4
        AlertDelivery.objects.filter(pk__in=[each.pk for each in deliveries]).update(state="delivered")

    monkeypatch.setattr(delivering, "send", slow)
    monkeypatch.setattr(delivering, "time", SimpleNamespace(monotonic=lambda: seconds[0]))

    assert deliver_overdue(now=timezone.now() + OVERDUE) > 0
    assert seconds[0] < STALE["consume"].total_seconds()


def test_consumers_look_after_the_workers(settings: Any) -> None:
    settings.ALERT_EMAILS = ["ops@example.com"]
    step = LOOPS["alerts"]()
    beats(timezone.now(), worker_1=300)

    assert step() == step() == 0  # nothing was due for long; and it does not look all the time
    assert open_alerts() == {("worker_not_consuming", "worker")}
