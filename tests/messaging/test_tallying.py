"""Counting from the event rows: each message once, whatever order and repetition its news came in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from instances.models import Instance, InstanceHour
from messaging import tallying
from messaging.models import Message, MessageEvent
from messaging.status import Move, move
from messaging.tallying import tally
from pilot import outbox, tallies
from pilot.models import StreamPlace
from tests.factories import NOW, make_instance, make_message

pytestmark = pytest.mark.django_db


@pytest.fixture
def instance() -> Instance:
    return make_instance()


@pytest.fixture
def accept(instance: Instance) -> Callable[..., Message]:
    """Accepts a message, as messaging/storing.py does."""

    def accepted(**fields: Any) -> Message:
        message = make_message(instance=instance, **fields)
        MessageEvent.objects.create(
            message=message, tenant=message.tenant, kind="queued", at=message.created_at
        )
        return message

    return accepted


def _goes(message: Message, *statuses: str, after: float = 3, **fields: Any) -> None:
    for number, status in enumerate(statuses, start=1):
        move(Move(message_id=message.pk, to=status, at=NOW + timedelta(seconds=after * number), **fields))


def _tally() -> dict[tuple[str, ...], float]:
    outbox.number(MessageEvent)
    while tally():
        pass
    return {(name, *labels): value for name, labels, value in tallies.read()}


def _hour(instance: Instance) -> tuple[int, int, int, int]:
    row = InstanceHour.objects.get(instance=instance)
    return row.accepted, row.sent, row.delivered, row.failed


def test_counts_the_way_of_a_message(instance: Instance, accept: Callable[..., Message]) -> None:
    _goes(accept(), "sending", "submitted", "sent", "delivered", "read", "played")

    counts = _tally()

    for step in ("accepted", "sent", "delivered"):
        assert counts[f"messages_{step}", "live", "utility"] == 1
    assert _hour(instance) == (1, 1, 1, 0)


def test_counts_a_receipt_that_skips_states_as_all_of_them(
    instance: Instance, accept: Callable[..., Message]
) -> None:
    _goes(accept(), "sending", "read")

    _tally()

    assert _hour(instance) == (1, 1, 1, 0)


def test_counts_a_message_that_is_tried_again_once(
    instance: Instance, accept: Callable[..., Message]
) -> None:
    message = accept()
    _goes(message, "sending", "queued", "sending", "submitted")

    assert _tally()["messages_retried", "live", "utility"] == 1
    assert _hour(instance) == (1, 1, 0, 0)


def test_counts_failures_by_code(instance: Instance, accept: Callable[..., Message]) -> None:
    for code in ("expired", "expired", "rejected"):
        _goes(accept(category="otp"), "failed", failure_code=code, detail={"code": code})
    _goes(
        accept(category="otp"),
        "sending",
        "submitted",
        "failed",
        failure_code="rejected",
        detail={"code": "4711"},
    )

    counts = _tally()

    assert counts["messages_failed", "live", "otp", "expired"] == 2
    assert counts["messages_failed", "live", "otp", "rejected"] == 1
    assert counts["messages_failed", "live", "otp", "other"] == 1
    assert _hour(instance) == (4, 1, 0, 4)


def test_measures_how_long_it_took(accept: Callable[..., Message]) -> None:
    _goes(accept(expected_at=NOW + timedelta(seconds=1)), "sending", "submitted", "delivered", after=4)

    counts = _tally()

    five, three = str(tallying.BOUNDS.index(5) + 1), str(tallying.BOUNDS.index(2) + 1)
    assert counts["seconds_to_sent", "utility", five] == 1  # 8 s, so above the bound of 5
    assert counts["seconds_to_sent_sum", "utility"] == 8
    assert counts["seconds_to_delivered", "utility", three] == 1
    assert counts["seconds_to_delivered_sum", "utility"] == 4
    assert counts["forecast_error", "late", five] == 1
    assert counts["forecast_error_sum", "late"] == 7


def test_measures_from_the_time_that_a_message_was_scheduled_for(accept: Callable[..., Message]) -> None:
    _goes(accept(scheduled_at=NOW + timedelta(seconds=5)), "sending", "submitted", after=4)

    assert _tally()["seconds_to_sent_sum", "utility"] == 3


def test_counts_in_batches_what_came_meanwhile(
    instance: Instance, accept: Callable[..., Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tallying, "BATCH", 2)
    for _number in range(3):
        _goes(accept(), "sending", "submitted")
    _tally()
    _goes(accept(), "sending", "submitted", "delivered")

    _tally()

    assert _hour(instance) == (4, 4, 1, 0)


def test_leaves_events_that_have_no_position_for_later(accept: Callable[..., Message]) -> None:
    accept()

    assert tally() == 0
    outbox.number(MessageEvent)
    assert tally() == 1
    assert tally() == 0


def test_separates_hours_and_instances(instance: Instance, accept: Callable[..., Message]) -> None:
    accept()
    accept(created_at=NOW - timedelta(minutes=1))
    other = make_message(instance=make_instance(instance.tenant))
    MessageEvent.objects.create(message=other, tenant=other.tenant, kind="queued", at=NOW)

    _tally()

    rows = InstanceHour.objects.order_by("instance", "hour").values_list("instance", "hour", "accepted")
    hour = NOW.replace(minute=0)
    assert list(rows) == [
        (instance.pk, hour - timedelta(hours=1), 1),
        (instance.pk, hour, 1),
        (other.instance_id, hour, 1),
    ]


@pytest.mark.django_db(transaction=True)
def test_counts_once_when_two_count_at_once(instance: Instance, accept: Callable[..., Message]) -> None:
    for _number in range(20):
        accept()
    outbox.number(MessageEvent)
    StreamPlace.objects.get_or_create(pk=tallying.PLACE)

    def work() -> None:
        tally()
        connection.close()

    with transaction.atomic():
        StreamPlace.objects.select_for_update().get(pk=tallying.PLACE)
        standby = threading.Thread(target=work)
        standby.start()
        standby.join(timeout=10)  # does not wait for the place
        assert not standby.is_alive()
        tally()

    assert _hour(instance) == (20, 0, 0, 0)
    assert tally() == 0
