"""The table of an instance's states, and the only writer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest
from django.db import connection, transaction

from accounts.models import Event
from instances import status
from instances.models import Instance, InstanceEvent, InstanceStatus
from messaging.models import Message
from tests.factories import make_instance, make_message, make_project

pytestmark = pytest.mark.django_db

ALLOWED = {
    ("created", "connecting"),
    ("created", "open"),
    ("created", "closed"),
    ("created", "removed"),
    ("connecting", "open"),
    ("connecting", "closed"),
    ("connecting", "removed"),
    ("open", "connecting"),
    ("open", "degraded"),
    ("open", "closed"),
    ("open", "removed"),
    ("degraded", "connecting"),
    ("degraded", "open"),
    ("degraded", "closed"),
    ("degraded", "removed"),
    ("closed", "connecting"),
    ("closed", "open"),
    ("closed", "removed"),
}


def move(instance: Instance, to: str, now: datetime, **rest: Any) -> bool:
    return status.move(instance_id=instance.pk, to=to, at=now, **rest)


@pytest.mark.parametrize(("old", "new"), list(product(InstanceStatus.values, repeat=2)))
def test_moves_as_the_table_says(old: str, new: str, now: datetime) -> None:
    instance = make_instance(status=old)

    moved = move(instance, new, now)

    instance.refresh_from_db()
    assert moved is ((old, new) in ALLOWED)
    assert instance.status == (new if moved else old)
    assert InstanceEvent.objects.count() == moved


def test_records_what_changed(now: datetime) -> None:
    instance = make_instance()

    move(instance, "closed", now, reason="logged_out", detail={"number": "", "by": "owner"})

    instance.refresh_from_db()
    assert (instance.status_reason, instance.status_changed_at) == ("logged_out", now)
    event = InstanceEvent.objects.get()
    assert (event.kind, event.at) == ("closed", now)
    assert event.detail == {"from": "open", "reason": "logged_out", "by": "owner"}


def test_changes_once_for_news_that_comes_twice(now: datetime) -> None:
    instance = make_instance()

    assert [move(instance, "closed", now), move(instance, "closed", now)] == [True, False]
    assert InstanceEvent.objects.count() == 1


def test_leaves_a_better_state_alone_when_told_to(now: datetime) -> None:
    instance = make_instance()

    assert not move(instance, "connecting", now, only_from={"closed"})
    assert move(instance, "connecting", now, only_from={"open"})


def test_leaves_alone_what_changed_since(now: datetime) -> None:
    """News of a call from before the instance connected again is of its old connection."""
    instance = make_instance(status_changed_at=now)

    assert not move(instance, "degraded", now, unless_changed_after=now - timedelta(seconds=1))
    assert move(instance, "degraded", now, unless_changed_after=now)


@pytest.mark.django_db(transaction=True)
def test_does_not_hold_up_messages_that_are_being_accepted(now: datetime) -> None:
    """A change may be part of a long transaction, and the foreign key of a new message needs the row."""
    instance = make_instance()
    project = make_project(instance.tenant)

    def accept() -> str:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '2s'")
                return make_message(project, instance).pk
        finally:
            connection.close()

    with transaction.atomic(), ThreadPoolExecutor(1) as elsewhere:
        move(instance, "closed", now)
        accepted = elsewhere.submit(accept).result()

    assert Message.objects.get().pk == accepted


def test_keeps_long_reasons_short(now: datetime) -> None:
    instance = make_instance()

    move(instance, "closed", now, reason="x" * 500)

    instance.refresh_from_db()
    assert instance.status_reason == "x" * 200


def test_tells_workers_after_the_commit(
    now: datetime, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    hints: list[object] = []
    monkeypatch.setattr(status, "queues_changed", lambda: hints.append("queues"))
    monkeypatch.setattr("pilot.celery.wake_all", hints.extend)
    instance = make_instance(status="closed")

    with django_capture_on_commit_callbacks(execute=True):
        move(instance, "open", now)
        assert hints == []
    assert hints == ["queues", instance.pk]

    with django_capture_on_commit_callbacks(execute=True):
        move(instance, "closed", now)
        move(instance, "closed", now)
    assert hints == ["queues", instance.pk, "queues"]


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ("connecting", "open", ["instance.connected"]),
        ("degraded", "open", ["instance.connected"]),
        ("open", "degraded", ["instance.degraded"]),
        ("open", "closed", ["instance.disconnected"]),
        ("open", "removed", ["instance.disconnected"]),
        ("closed", "removed", []),
        ("open", "connecting", []),
        ("open", "open", []),
    ],
)
def test_tells_the_tenant_what_became_of_the_connection(
    old: str, new: str, kinds: list[str], now: datetime
) -> None:
    instance = make_instance(status=old, number="+5511999990000")

    move(instance, new, now, reason="logged_out")

    told = list(Event.objects.all())
    assert [event.kind for event in told] == kinds
    for event in told:
        assert (event.tenant, event.at) == (instance.tenant, now)
        assert event.detail == {
            "instance": instance.name,
            "number": "+5511999990000",
            "status": new,
            "reason": "logged_out",
        }
