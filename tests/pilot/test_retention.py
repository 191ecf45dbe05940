"""Retention: what is old goes, in small pieces, and nothing else does."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings as configured
from django.contrib.sessions.models import Session
from django.db import connection

from accounts.models import Event
from instances.models import InstanceEvent
from pilot import maintenance, retention
from pilot.maintenance import SEEN, Step
from pilot.models import Alert, AlertDelivery, MaintenanceRun, StreamPlace
from tests.factories import NOW, make_instance, make_tenant

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, without making them."""
    made: list[float] = []
    monkeypatch.setattr(maintenance, "pause", made.append)
    return made


def step(name: str) -> Step:
    return next(each for each in retention.steps() if each.name == name)


def go(name: str, now: datetime = NOW) -> Counter[str]:
    total: Counter[str] = Counter()
    for batch in step(name).batches(now):
        total.update(batch)
    return total


def event(days_ago: float, **fields: Any) -> InstanceEvent:
    values = {"kind": "open", "at": NOW - days_ago * DAY} | fields
    return InstanceEvent.objects.create(**{"instance": make_instance()} | values)


def test_deletes_what_is_older_than_its_policy(settings: Any) -> None:
    settings.RETENTION_DAYS = settings.RETENTION_DAYS | {"instance_events": 10}
    _old, young = event(10.1), event(9.9)

    assert go("instance_events") == Counter({"instance_events": 1, SEEN: 2})
    assert list(InstanceEvent.objects.all()) == [young]


def test_keeps_for_ever_what_has_no_days(settings: Any) -> None:
    settings.RETENTION_DAYS = settings.RETENTION_DAYS | {"instance_events": 0}
    event(10_000)

    assert go("instance_events") == Counter()
    assert InstanceEvent.objects.count() == 1


def test_works_in_small_batches_with_pauses_and_stops_where_the_young_begin(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    monkeypatch.setattr(retention, "PAGE", 2)
    instance = make_instance()
    for days_ago in (99, 98, 97, 96, 95, 3, 2, 1, 0):
        event(days_ago, instance=instance)

    batches = list(step("instance_events").batches(NOW))

    assert [batch["instance_events"] for batch in batches] == [2, 2, 1]
    assert [batch[SEEN] for batch in batches] == [2, 2, 2]
    assert len(pauses) == 3
    assert all(0 <= pause <= retention.LONGEST_PAUSE_SECONDS for pause in pauses)
    assert InstanceEvent.objects.count() == 4


def test_goes_on_behind_rows_that_must_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PAGE", 1)
    for recovered_at in (None, NOW - 100 * DAY):
        Alert.objects.create(
            kind="test", subject="x", raised_at=NOW - 200 * DAY, seen_at=NOW, recovered_at=recovered_at
        )
    AlertDelivery.objects.create(
        alert=Alert.objects.last(), notice="raised", channel="pushover", language="en"
    )

    go("alerts")

    assert [alert.recovered_at for alert in Alert.objects.all()] == [None]


def test_deletes_no_event_that_a_reader_has_not_read() -> None:
    tenant = make_tenant()
    for position in (1, 2, 3, None):
        Event.objects.create(tenant=tenant, kind="x", at=NOW - 100 * DAY, position=position)
    for reader, position in (("numbered", 3), ("webhooks", 2)):
        StreamPlace.objects.create(name=f"accounts.event.{reader}", position=position)

    go("account_events")

    assert list(Event.objects.order_by("pk").values_list("position", flat=True)) == [3, None]


def test_deletes_no_event_while_nobody_reads() -> None:
    Event.objects.create(tenant=make_tenant(), kind="x", at=NOW - 100 * DAY, position=1)

    assert go("account_events")["account_events"] == 0


def test_ends_sessions_that_have_expired() -> None:
    Session.objects.create(session_key="old", session_data="", expire_date=NOW - DAY)
    Session.objects.create(session_key="new", session_data="", expire_date=NOW + DAY)

    assert go("sessions")["sessions"] == 1
    assert Session.objects.get().pk == "new"


def test_writes_down_what_it_did() -> None:
    event(100)

    retention.run(clock=lambda: NOW)

    run = MaintenanceRun.objects.get()
    assert (run.kind, run.outcome, run.counts) == ("retention", "done", {"instance_events": 1})


def test_every_policy_is_carried_out() -> None:
    timeless = {"sessions"}

    assert {each.name for each in retention.steps()} - timeless == set(configured.RETENTION_DAYS)


@pytest.mark.parametrize(
    "table", ["messaging_message", "messaging_messageevent", "webhooks_inboundcall"], ids=lambda table: table
)
def test_tables_with_a_queue_in_an_index_are_vacuumed_early_and_whole(table: str) -> None:
    """Its dead entries are walked by whoever asks for the next one, however large the table is."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = %s", [table])
        options = dict(option.split("=") for option in cursor.fetchone()[0])

    assert options["autovacuum_vacuum_scale_factor"] == "0"
    assert int(options["autovacuum_vacuum_threshold"]) <= 200_000
    assert options["vacuum_index_cleanup"] == "on"
