"""The first system's faults PF-03 … PF-12, each as a test that its design would fail. PF-01 and PF-02 need real
processes: see tests/product and test_dying.py."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from instances.models import Instance, Lane
from instances.providers.base import Receipt
from messaging import pulse, reconciling
from messaging.claiming import claim
from messaging.models import Message, Status
from messaging.settling import Settlement, settle
from pilot.celery import app
from pilot.redis import client
from tests.factories import NOW, make_instance, make_message, make_project
from tests.messaging.sends import Sends

pytestmark = pytest.mark.django_db

ACCEPTED = Receipt(provider_message_id="3EB0", recipient_id="", status=Status.SUBMITTED)


def everything(now: Any) -> None:
    """All that time alone sets in motion."""
    reconciling.reconcile_deadlines(now=now)
    reconciling.resolve_unconfirmed(now=now)
    pulse.promote(now=now)


def test_pf_03_what_was_submitted_is_never_sent_again_without_an_acknowledgement() -> None:
    """There, a message without SERVER_ACK stayed queued and was sent again after seven days."""
    message = make_message(status=Status.SUBMITTED, submitted_at=NOW, attempts=1)

    for days in (1, 7, 30):
        everything(NOW + timedelta(days=days))

    message.refresh_from_db()
    assert message.status == Status.SUBMITTED
    assert claim([message.instance_id], now=NOW + timedelta(days=8)) == []


def test_pf_05_a_code_that_nobody_sends_expires_within_half_a_minute_of_its_deadline() -> None:
    """There, the reconciler came by once an hour, and a code lives for two minutes."""
    code = make_message(category="otp", deliver_until=NOW + timedelta(minutes=2))
    every = app.conf.beat_schedule["reconcile-deadlines"]["schedule"]

    reconciling.reconcile_deadlines(now=NOW + timedelta(minutes=2, seconds=every))

    code.refresh_from_db()
    assert every <= 30
    assert (code.status, code.failure_code) == (Status.FAILED, "expired")


def test_pf_06_a_closed_instance_keeps_messages_until_their_deadline_and_not_for_a_week() -> None:
    instance = make_instance(status="closed")
    message = make_message(instance=instance)

    everything(NOW + timedelta(minutes=59))
    message.refresh_from_db()
    waiting = (message.status, message.attempts)
    everything(NOW + timedelta(hours=1))

    message.refresh_from_db()
    assert waiting == (Status.QUEUED, 0)
    assert (message.status, message.failure_code) == (Status.FAILED, "expired")


def test_pf_06_goes_on_in_order_when_the_instance_opens() -> None:
    instance = make_instance(status="closed")
    project = make_project(instance.tenant)
    messages = [
        make_message(project, instance, deliver_until=NOW + timedelta(hours=hour)) for hour in (3, 1, 2)
    ]
    assert claim([instance.pk], now=NOW) == []

    Instance.objects.filter(pk=instance.pk).update(status="open")
    order = []
    while claims := claim([instance.pk], now=NOW):
        order.append(claims[0].message.id)
        Lane.objects.update(in_flight=0)

    assert order == [messages[1].pk, messages[2].pk, messages[0].pk]


def test_pf_07_ten_thousand_of_one_project_delay_anothers_next_message_by_one_send() -> None:
    instance = make_instance()
    busy, second, third = (make_project(instance.tenant) for _ in range(3))
    burst(busy, instance, 10_000)
    served(instance, 3)

    waiting = {make_message(project, instance).pk for project in (second, third)}

    assert waiting <= set(served(instance, 3))


def burst(project: Any, instance: Instance, count: int) -> None:
    template = make_message(project, instance)
    values = {field.attname: getattr(template, field.attname) for field in Message._meta.concrete_fields}
    Message.objects.bulk_create(
        (Message(**values | {"id": f"burst-{number:05}"}) for number in range(count - 1)), batch_size=1000
    )


def served(instance: Instance, count: int) -> list[str]:
    taken = []
    for _ in range(count):
        taken += [each.message.id for each in claim([instance.pk], now=NOW)]
        Lane.objects.update(in_flight=0)
    return taken


def test_pf_08_a_text_without_template_is_kept_by_every_sweep_and_sent() -> None:
    """There, the reconciler took such a payload for a broken one and failed the message."""
    message = make_message(body_override=True, template_version=None, content={"text": "Olá"})

    everything(NOW + timedelta(minutes=10))

    (each,) = claim([message.instance_id], now=NOW + timedelta(minutes=10))
    assert each.message.text == "Olá"


def test_pf_11_what_was_found_late_leaves_no_pause_after_it() -> None:
    """There, the pause of 30-46 s came after every message, late ones included."""
    instance = make_instance(pace_least_seconds=30, pace_most_seconds=46)
    project = make_project(instance.tenant)
    for _ in range(5):
        make_message(project, instance)
    later = NOW + timedelta(minutes=10)

    found = reconciling.hurry(now=later)
    claim([instance.pk], now=later)
    Lane.objects.update(in_flight=0)

    assert (
        found == reconciling.HURRIED_AT_ONCE
    )  # not the whole queue at once: that would get the number banned
    assert len(claim([instance.pk], now=later)) == 1


def test_pf_11_what_waits_for_its_turn_is_not_late() -> None:
    busy = make_instance(pace_least_seconds=30, pace_most_seconds=46)
    make_message(instance=busy)
    later = NOW + timedelta(minutes=10)
    Lane.objects.filter(instance=busy).update(next_send_at=later - timedelta(seconds=5))

    assert reconciling.hurry(now=later) == 0


def test_pf_12_an_instance_may_send_several_at_once() -> None:
    """There, one slow answer held up everything behind it."""
    instance = make_instance(concurrency=3)
    project = make_project(instance.tenant)
    for _ in range(4):
        make_message(project, instance)

    first, second, third, fourth = (claim([instance.pk], now=NOW) for _ in range(4))
    settle([Settlement(second[0], ACCEPTED)], now=NOW)

    assert [len(batch) for batch in (first, second, third, fourth)] == [1, 1, 1, 0]
    assert len(claim([instance.pk], now=NOW)) == 1


def test_thousands_of_paced_instances_need_no_more_threads_or_connections_than_a_few(sends: Sends) -> None:
    """Of 5,000 instances with due work nearly all are within their pace at any moment; they cost rows."""
    few = [sends.instance(pace_least_seconds=30, pace_most_seconds=46) for _ in range(5)]
    messages = [sends.message(instance) for instance in few]
    pulse.beat(now=timezone.now())
    threads, clients = threading.active_count(), connected_clients()

    many = _copies(few[0], messages[0], 5000)
    pulse.beat(now=timezone.now())
    sends.run(*few, *many)

    assert len(sends.texts()) == 5
    assert Message.objects.filter(status=Status.QUEUED).count() == 5000
    assert threading.active_count() <= threads
    assert connected_clients() <= clients


def _copies(instance: Instance, message: Message, count: int) -> list[Instance]:
    """Instances within their pace, each with a due message."""
    soon = timezone.now() + timedelta(seconds=30)
    rows = [_copy(instance, number) for number in range(count)]
    Instance.objects.bulk_create(rows, batch_size=1000)
    Lane.objects.bulk_create(Lane(instance=row, next_send_at=soon, next_urgent_at=soon) for row in rows)
    values = {field.attname: getattr(message, field.attname) for field in Message._meta.concrete_fields}
    Message.objects.bulk_create(
        Message(**values | {"id": f"paced-{row.pk}", "instance_id": row.pk}) for row in rows
    )
    return rows


def _copy(instance: Instance, number: int) -> Instance:
    values = {field.attname: getattr(instance, field.attname) for field in Instance._meta.concrete_fields}
    unique = {"name": f"c{number}", "provider_name": f"c{number}", "hook_digest": f"digest-{number}"}
    return Instance(**{name: value for name, value in values.items() if name != "id"} | unique)


def connected_clients() -> int:
    """Clients of our database: the server may have other users."""
    ours = str(client().connection_pool.connection_kwargs.get("db", 0))
    clients: Any = client().client_list()
    return sum(client["db"] == ours for client in clients)
