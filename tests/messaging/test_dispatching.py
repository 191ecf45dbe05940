"""Whole sends: a dispatcher, a real database and the sandbox's ledger of what really went out."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from instances.models import Breaker, Lane
from messaging import dispatching, reconciling
from messaging.dispatching import Dispatcher
from messaging.models import Message, Status
from tests.factories import make_project
from tests.messaging.sends import Sends, timeline
from tests.sandbox.emulator import eventually


def test_sends_a_message_once_and_knows_its_id(sends: Sends) -> None:
    instance = sends.instance()
    message = sends.message(instance, content={"text": "Olá, Ana"})

    sends.run(instance)

    message.refresh_from_db()
    (entry,) = sends.emulator.ledger()
    assert (message.status, message.provider_message_id) == (Status.SUBMITTED, entry["key_id"])
    assert (entry["text"], message.recipient_id) == ("Olá, Ana", entry["remote_jid"])
    assert timeline(message) == ["sending", "submitted"]


def test_drains_a_queue_in_order_without_being_woken_again(sends: Sends) -> None:
    instance = sends.instance()
    project = make_project(instance.tenant)
    for number in range(10):
        sends.message(instance, project=project, id=f"m{number}", content={"text": str(number)})

    sends.run(instance)

    assert sends.texts() == [str(number) for number in range(10)]


def test_shows_typing_first_and_sends_even_when_that_fails(sends: Sends) -> None:
    instance = sends.instance(typing_ms=20)
    sends.emulator.arm("typing_fails", times=1)
    message = sends.message(instance)

    sends.run(instance)

    message.refresh_from_db()
    operations = [
        request["op"]
        for request in sends.emulator.requests()
        if request["op"].startswith(("chat", "message"))
    ]
    assert operations == ["chat/sendPresence", "message/sendText"]
    assert message.status == Status.SUBMITTED


def test_never_sends_after_the_deadline_even_when_it_passes_while_typing(sends: Sends) -> None:
    instance = sends.instance(typing_ms=1000)
    message = sends.message(instance, deliver_until=timezone.now() + timedelta(milliseconds=500))

    sends.run(instance)

    message.refresh_from_db()
    assert (message.status, message.failure_code) == (Status.FAILED, "expired")
    assert sends.texts() == []


def test_does_not_let_leave_what_might_arrive_after_its_deadline(sends: Sends) -> None:
    instance = sends.instance(concurrency=2)
    now = timezone.now()
    sends.message(instance, content={"text": "too close"}, deliver_until=now + dispatching.ON_THE_WAY)
    sends.message(instance, content={"text": "in time"}, deliver_until=now + 2 * dispatching.ON_THE_WAY)
    dispatcher = Dispatcher(in_flight=2, clock=lambda: now)
    dispatcher.start()

    dispatcher.wake(instance.pk)
    assert dispatcher.idle(timeout=20)
    dispatcher.stop(timeout=10)

    assert sends.texts() == ["in time"]


@pytest.mark.parametrize(
    ("fault", "status", "sent"),
    [
        ({"kind": "answer_lost"}, Status.UNCONFIRMED, 1),
        ({"kind": "reset_before"}, Status.UNCONFIRMED, 0),
        ({"kind": "error", "shape": "bad_gateway_502"}, Status.UNCONFIRMED, 0),
        ({"kind": "error", "shape": "prisma_400"}, Status.SUBMITTED, 1),
        ({"kind": "error", "shape": "not_on_whatsapp"}, Status.FAILED, 0),
        ({"kind": "error", "shape": "too_many_429"}, Status.QUEUED, 0),
    ],
    ids=lambda value: str(value.get("shape", value["kind"])) if isinstance(value, dict) else None,
)
def test_each_answer_has_its_meaning(sends: Sends, fault: dict[str, Any], status: str, sent: int) -> None:
    instance = sends.instance()
    message = sends.message(instance)
    sends.emulator.arm(**fault, times=1)

    sends.run(instance)

    message.refresh_from_db()
    assert (message.status, len(sends.texts())) == (status, sent)


def test_a_lost_answer_is_looked_up_and_not_sent_again(sends: Sends) -> None:
    instance = sends.instance()
    message = sends.message(instance, content={"text": "Seu código é 4711"})
    sends.emulator.arm("answer_lost", times=1)
    sends.run(instance)

    reconciling.look_up_unconfirmed(now=timezone.now() + timedelta(seconds=6))

    message.refresh_from_db()
    (entry,) = sends.emulator.ledger()
    assert message.provider_message_id == entry["key_id"]
    assert message.status in {Status.SUBMITTED, Status.SENT, Status.DELIVERED, Status.READ}


def test_a_dead_instance_costs_no_attempt_and_does_not_disturb_another(sends: Sends) -> None:
    dead, alive = sends.instance(), sends.instance()
    waiting = sends.message(dead, content={"text": "dead"})
    fine = [sends.message(alive, content={"text": "alive"}) for _ in range(5)]
    sends.emulator.arm("dead_socket", instance=dead.provider_name)

    sends.run(dead, alive)

    waiting.refresh_from_db(), dead.refresh_from_db()
    assert (waiting.status, waiting.attempts, dead.status) == (Status.QUEUED, 0, "degraded")
    assert Message.objects.filter(pk__in=[each.pk for each in fine], status=Status.SUBMITTED).count() == 5


def test_a_hung_instance_does_not_delay_another(sends: Sends, settings: Any) -> None:
    hung, alive = sends.instance(), sends.instance()
    sends.message(hung)
    fine = sends.message(alive)
    sends.emulator.arm("latency", seconds=2, instance=hung.provider_name)

    sends.dispatcher.wake(hung.pk, alive.pk)
    eventually(lambda: Message.objects.get(pk=fine.pk).status == Status.SUBMITTED, within=1.5)

    assert Lane.objects.get(instance=hung).in_flight == 1
    assert sends.dispatcher.idle(timeout=10)


def test_an_unreachable_server_opens_its_breaker_and_keeps_the_messages(sends: Sends) -> None:
    instances = [sends.instance() for _ in range(6)]
    messages = [sends.message(instance) for instance in instances]
    sends.server.url = "http://127.0.0.1:9"
    sends.server.save(update_fields=["url"])

    sends.run(*instances)

    assert Breaker.objects.get(server=sends.server).open_until > timezone.now()
    assert set(
        Message.objects.filter(pk__in=[each.pk for each in messages]).values_list("status", flat=True)
    ) == {Status.QUEUED}


def test_uses_the_slots_of_a_concurrent_instance_at_once(sends: Sends) -> None:
    instance = sends.instance(concurrency=3)
    project = make_project(instance.tenant)
    for _ in range(3):
        sends.message(instance, project=project)
    sends.emulator.arm("latency", seconds=0.5)
    started = timezone.now()

    sends.run(instance)

    assert len(sends.texts()) == 3
    assert timezone.now() - started < timedelta(seconds=1.4)  # one after the other would take 1.5 s


def test_many_instances_need_no_more_threads_than_few(sends: Sends) -> None:
    instances = [sends.instance() for _ in range(60)]
    for instance in instances:
        sends.message(instance)
    before = threading.active_count()

    sends.dispatcher.wake(*(instance.pk for instance in instances))
    most = max(threading.active_count() for _ in range(50) if not threading.Event().wait(0.01))
    assert sends.dispatcher.idle(timeout=20)

    assert most <= before
    assert len(sends.texts()) == 60


def test_stopping_waits_for_what_is_in_flight(sends: Sends) -> None:
    instance = sends.instance()
    message = sends.message(instance)
    sends.emulator.arm("latency", seconds=0.5)
    dispatcher = Dispatcher(in_flight=5)
    dispatcher.start()
    dispatcher.wake(instance.pk)
    eventually(lambda: Message.objects.get(pk=message.pk).status == Status.SENDING)

    assert dispatcher.stop(timeout=5)

    message.refresh_from_db()
    assert message.status == Status.SUBMITTED


def test_nothing_leaves_after_the_deadline_while_it_is_connecting(sends: Sends) -> None:
    """A server whose backlog is full takes connections when the deadline has passed."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        crowd = [_knock(listener) for _ in range(4)]
        sends.server.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        sends.server.save(update_fields=["url"])
        message = sends.message(sends.instance(), deliver_until=timezone.now() + timedelta(seconds=0.7))

        sends.dispatcher.wake(message.instance_id)
        eventually(lambda: Message.objects.get(pk=message.pk).status == Status.FAILED, within=3)
        arrived = b"".join(_accepted(listener))
        for client in crowd:
            client.close()

    assert b"sendText" not in arrived
    assert Message.objects.get(pk=message.pk).failure_code == "expired"


def _knock(listener: socket.socket) -> socket.socket:
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(listener.getsockname())
    return client


def _accepted(listener: socket.socket) -> Iterator[bytes]:
    """What came over every connection that the server can still take."""
    listener.settimeout(1.5)
    with contextlib.suppress(TimeoutError):
        while True:
            connection, _address = listener.accept()
            with connection, contextlib.suppress(TimeoutError, ConnectionError):
                connection.settimeout(0.2)
                yield connection.recv(65536)
