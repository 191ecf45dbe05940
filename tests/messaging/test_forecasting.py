"""Position and expected time, from the same rules by which messages are claimed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from instances.models import Instance, Lane
from messaging import forecasting
from messaging.claiming import claim
from messaging.models import Message
from tests.factories import NOW, make_instance, make_message, make_project

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_memory() -> Iterator[None]:
    forecasting.forget()
    yield
    forecasting.forget()


def waiting(message: Message, now: datetime = NOW) -> forecasting.Forecast:
    instance = Instance.objects.select_related("tenant", "lane").get(pk=message.instance_id)
    return forecasting.for_waiting(message, instance=instance, lane=instance.lane, now=now)


def paced(**fields: Any) -> Instance:
    return make_instance(pace_least_seconds=30, pace_most_seconds=46, urgent_gap_seconds=2, **fields)


def test_the_only_message_is_next_and_expected_at_once() -> None:
    assert waiting(make_message()) == forecasting.Forecast(1, NOW)


def test_counts_the_own_project_by_deadline_and_the_pace_between() -> None:
    instance = paced()
    project = make_project(instance.tenant)
    messages = [
        make_message(project, instance, deliver_until=NOW + timedelta(hours=hour)) for hour in (1, 2, 3)
    ]

    assert waiting(messages[2]) == forecasting.Forecast(3, NOW + timedelta(seconds=2 * 38))


def test_a_rival_goes_first_at_most_once_for_each_own_turn() -> None:
    instance = make_instance()
    busy, quiet = make_project(instance.tenant), make_project(instance.tenant)
    for _ in range(50):
        make_message(busy, instance)
    first, second = make_message(quiet, instance, id="a"), make_message(quiet, instance, id="b")

    assert (waiting(first).position, waiting(second).position) == (2, 4)


def test_urgent_ones_go_before() -> None:
    instance = paced()
    project = make_project(instance.tenant)
    normal = make_message(project, instance)
    for _ in range(3):
        urgent = make_message(project, instance, urgent=True, deliver_until=NOW + timedelta(minutes=2))

    assert waiting(normal) == forecasting.Forecast(4, NOW + timedelta(seconds=6))
    assert waiting(urgent).position <= 3


def test_nobody_can_know_while_the_instance_is_closed() -> None:
    forecast = waiting(make_message(instance=make_instance(status="closed")))

    assert forecast == forecasting.Forecast(1, None)
    assert forecast.late(NOW + timedelta(days=1))


def test_waits_for_tomorrow_when_the_day_is_used_up() -> None:
    instance = make_instance(daily_cap=2)
    Lane.objects.filter(instance=instance).update(sent_on=NOW.date(), sent_count=2)

    forecast = waiting(make_message(instance=instance, deliver_until=NOW + timedelta(days=3)))

    assert forecast.expected_at == datetime.fromisoformat("2026-11-30T00:00:00-03:00")


def test_a_new_code_is_not_behind_the_campaign_of_its_project() -> None:
    instance = paced()
    project = make_project(instance.tenant)
    for _ in range(20):
        make_message(project, instance, category="marketing", deliver_until=NOW + timedelta(hours=4))
    code = Message(project=project, instance=instance, category="otp", urgent=False)
    full = Instance.objects.select_related("tenant", "lane").get(pk=instance.pk)

    assert forecasting.for_new(code, instance=full, lane=full.lane, now=NOW).position == 1


def test_comes_true() -> None:
    """The forecasts for a mixed queue against the order in which it is really claimed."""
    instance = make_instance()
    projects = [make_project(instance.tenant), make_project(instance.tenant)]
    messages = [
        make_message(projects[number % 3 == 0], instance, urgent=number % 5 == 0, id=f"m{number:02}")
        for number in range(20)
    ]
    expected = {message.pk: waiting(message).position for message in messages}

    order = []
    while claims := claim([instance.pk], now=NOW):
        Lane.objects.update(in_flight=0)
        order.append(claims[0].message.id)

    errors = [abs(expected[key] - place) for place, key in enumerate(order, start=1)]
    assert len(order) == 20
    assert max(errors) <= 2
