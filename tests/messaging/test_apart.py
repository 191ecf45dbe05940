"""One row, answer or instance that makes no sense keeps no other from being sent; stale news undoes nothing."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError
from django.utils import timezone

from instances import breaking
from instances.models import Instance, Lane
from instances.providers import PROVIDERS
from instances.providers.base import Outcome, ProviderError, Receipt
from messaging import dispatching, opt_ins, pulse, reconciling, settling
from messaging.claiming import claim
from messaging.dispatching import Dispatcher
from messaging.models import Message, Status, UnknownPolicy
from messaging.settling import Settlement, settle
from pilot.celery import app
from tests.factories import NOW, make_instance, make_message, make_project
from tests.messaging.sends import Sends

pytestmark = pytest.mark.django_db


def error(outcome: Outcome, code: str) -> ProviderError:
    return ProviderError(code, "", outcome=outcome)


# --- stale news -------------------------------------------------------------------------------------------


def test_a_settlement_written_twice_does_not_undo_a_later_attempt() -> None:
    """Otherwise the second attempt, whose outcome is not known, would be queued and sent again."""
    message = make_message()
    (first,) = claim([message.instance_id], now=NOW)
    refused_connection = Settlement(first, error(Outcome.RETRY, "provider_unreachable"))
    settle([refused_connection], now=NOW)
    later = NOW + timedelta(seconds=40)
    pulse.promote(now=later)
    (second,) = claim([message.instance_id], now=later)
    settle([Settlement(second, error(Outcome.UNKNOWN, "no_answer"))], now=later)

    settle([refused_connection], now=later)

    message.refresh_from_db()
    assert message.status == Status.UNCONFIRMED


def test_an_instance_that_was_down_in_an_earlier_attempt_queues_nothing_now() -> None:
    """Here the attempt was refunded, so counting attempts could not tell the two apart."""
    message = make_message()
    (first,) = claim([message.instance_id], now=NOW)
    down = Settlement(first, error(Outcome.INSTANCE_DOWN, "instance_disconnected"))
    settle([down], now=NOW)
    Instance.objects.update(status="open")
    (second,) = claim([message.instance_id], now=NOW + timedelta(seconds=1))
    settle([Settlement(second, error(Outcome.UNKNOWN, "no_answer"))], now=NOW)

    settle([down], now=NOW)

    message.refresh_from_db()
    assert (second.attempt, message.status) == (1, Status.UNCONFIRMED)


def test_an_attempt_from_before_it_reconnected_does_not_degrade_an_instance() -> None:
    message = make_message()
    (each,) = claim([message.instance_id], now=NOW)
    Instance.objects.update(status_changed_at=NOW + timedelta(seconds=1))

    settle([Settlement(each, error(Outcome.INSTANCE_DOWN, "instance_disconnected"))], now=NOW)

    assert Instance.objects.get(pk=message.instance_id).status == "open"


def test_learning_that_fails_does_not_make_anybody_settle_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_kwargs: Any) -> None:
        raise DatabaseError("deadlock detected")

    monkeypatch.setattr(breaking, "note", fail)
    message = make_message()
    (each,) = claim([message.instance_id], now=NOW)

    settle([Settlement(each, Receipt("3EB0", "", Status.SUBMITTED))], now=NOW)

    message.refresh_from_db()
    assert message.status == Status.SUBMITTED


def test_a_slow_look_up_takes_no_message_out_of_a_workers_hands(monkeypatch: pytest.MonkeyPatch) -> None:
    message = make_message(category="otp", deliver_until=NOW + timedelta(minutes=2))
    UnknownPolicy.objects.create(tenant=message.tenant, resend=True)
    (first,) = claim([message.instance_id], now=NOW)
    settle([Settlement(first, error(Outcome.UNKNOWN, "no_answer"))], now=NOW)
    soon = NOW + timedelta(seconds=25)

    def overtaken(_messages: Any, _now: Any) -> dict[str, Any]:
        """Another look-up decides meanwhile, and a worker claims."""
        monkeypatch.setattr(reconciling, "_ask", lambda messages, now: {})
        reconciling.look_up_unconfirmed(now=soon + timedelta(seconds=26))
        assert len(claim([message.instance_id], now=soon + timedelta(seconds=26))) == 1
        return {}

    monkeypatch.setattr(reconciling, "_ask", overtaken)
    reconciling.look_up_unconfirmed(now=soon)

    message.refresh_from_db()
    assert message.status == Status.SENDING
    assert claim([message.instance_id], now=soon + timedelta(seconds=27)) == []


def test_a_code_is_sent_again_once_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciling, "_ask", lambda messages, now: {})
    message = make_message(category="otp", deliver_until=NOW + timedelta(hours=1))
    UnknownPolicy.objects.create(tenant=message.tenant, resend=True)
    now, sends = NOW, 0
    while claims := claim([message.instance_id], now=now):
        sends += 1
        settle([Settlement(claims[0], error(Outcome.UNKNOWN, "no_answer"))], now=now)
        now += reconciling.RESEND_AFTER + timedelta(seconds=1)
        reconciling.look_up_unconfirmed(now=now)

    assert sends == 1 + reconciling.RESENDS


# --- rows and answers that make no sense ------------------------------------------------------------------


def test_an_incomplete_message_fails_and_holds_nobody_up(sends: Sends) -> None:
    bad, *good = (sends.instance() for _ in range(4))
    broken = sends.message(bad, content={"title": "no text"})
    messages = [sends.message(instance) for instance in good]

    sends.run(bad, *good)

    broken.refresh_from_db()
    assert (broken.status, broken.failure_code) == (Status.FAILED, "invalid_content")
    assert set(statuses(messages)) == {Status.SUBMITTED}


def test_an_instance_whose_secrets_cannot_be_read_holds_nobody_up(sends: Sends) -> None:
    bad, good = sends.instance(), sends.instance()
    waiting, fine = sends.message(bad), sends.message(good)
    Instance.objects.filter(pk=bad.pk).update(credentials={"key": "x"})
    spoil("instances_instance", "credentials", bad.pk)

    sends.run(bad, good)

    assert statuses([waiting, fine]) == [Status.QUEUED, Status.SUBMITTED]


def spoil(table: str, column: str, key: int) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET {column} = 'not a token' WHERE id = %s", [key])


@pytest.mark.parametrize(
    "result",
    [
        Receipt("X" * 300, "", Status.SUBMITTED),
        Receipt("3EB0", "J" * 300, Status.SUBMITTED),
        ProviderError("rejected", "a\x00b", outcome=Outcome.REJECTED),
        ProviderError("throttled", "", outcome=Outcome.RETRY, retry_after=1e12),
    ],
    ids=["a long id", "a long recipient", "NUL in a complaint", "a wait of 30,000 years"],
)
def test_an_odd_answer_is_settled_and_keeps_no_other_from_it(result: Any) -> None:
    odd, fine = make_message(), make_message()
    claims = {each.message.id: each for each in claim([odd.instance_id, fine.instance_id], now=NOW)}

    settle(
        [
            Settlement(claims[odd.pk], result),
            Settlement(claims[fine.pk], Receipt("3EB1", "", Status.SUBMITTED)),
        ],
        now=NOW,
    )

    assert statuses([fine]) == [Status.SUBMITTED]
    assert statuses([odd])[0] not in {Status.QUEUED, Status.SENDING}
    assert set(Lane.objects.values_list("in_flight", flat=True)) == {0}


def test_typing_decides_nothing_even_when_it_breaks(sends: Sends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROVIDERS["evolution"], "typing", lambda *args, **kwargs: 1 / 0)
    instance = sends.instance(typing_ms=20)
    message = sends.message(instance)

    sends.run(instance)

    assert statuses([message]) == [Status.SUBMITTED]


def test_a_provider_that_is_gone_leaves_its_messages_waiting(sends: Sends) -> None:
    instance = sends.instance(provider="fax")
    message = sends.message(instance)

    sends.run(instance)

    message.refresh_from_db()
    assert (message.status, message.attempts) == (Status.QUEUED, 0)


def statuses(messages: list[Message]) -> list[str]:
    found = dict(Message.objects.filter(pk__in=[each.pk for each in messages]).values_list("pk", "status"))
    return [found[each.pk] for each in messages]


# --- one queue, one server, one process -------------------------------------------------------------------


def test_refused_heads_do_not_hold_up_those_behind_them() -> None:
    instance = make_instance()
    project = make_project(instance.tenant)
    for _ in range(5):
        make_message(project, instance, to="+5511988880000", deliver_until=NOW + timedelta(minutes=1))
    good = make_message(project, instance)
    opt_ins.revoke(tenant=instance.tenant, number="+5511988880000", source="test", now=NOW)

    claims = claim([instance.pk], now=NOW)

    assert [each.message.id for each in claims] == [good.pk]


def test_busy_instances_share_the_slots_of_a_worker(sends: Sends) -> None:
    instances = [sends.instance() for _ in range(4)]
    for instance in instances:
        project = make_project(instance.tenant)
        for _ in range(10):
            sends.message(instance, project=project, content={"text": str(instance.pk)})
    dispatcher = Dispatcher(in_flight=2)
    dispatcher.start()

    dispatcher.wake(*(instance.pk for instance in instances))
    assert dispatcher.idle(timeout=30)
    assert dispatcher.stop(timeout=5)

    order = sends.texts()
    assert max(order.index(str(instance.pk)) for instance in instances) < 12


def test_a_hung_server_takes_its_share_of_the_slots_and_no_more(sends: Sends) -> None:
    hung = [sends.instance() for _ in range(4)]
    for instance in hung:
        sends.message(instance)
        sends.emulator.arm("latency", seconds=2, instance=instance.provider_name)
    dispatcher = Dispatcher(in_flight=4)
    dispatcher.start()
    dispatcher.wake(*(instance.pk for instance in hung))
    threading.Event().wait(0.5)

    assert dispatcher._busy == 1
    assert dispatcher.idle(timeout=20)
    assert dispatcher.stop(timeout=5)


def test_one_silent_instance_does_not_close_its_servers_breaker() -> None:
    silent = make_instance()
    neighbour = make_instance(silent.tenant, server=silent.server)
    make_message(instance=neighbour)
    silence = breaking.Failure(silent.server_id, silent.pk, "no_answer")

    for _ in range(10):
        breaking.note(answered=[], failures=[silence], now=NOW)

    assert len(claim([neighbour.pk], now=NOW)) == 1


def test_the_silence_of_many_instances_is_the_servers() -> None:
    first = make_instance()
    others = [make_instance(first.tenant, server=first.server) for _ in range(4)]
    failures = [breaking.Failure(first.server_id, each.pk, "no_answer") for each in (first, *others)]

    breaking.note(answered=[], failures=failures, now=NOW)

    assert breaking.Breaker.objects.get(pk=first.server_id).open_until is not None


def test_a_process_has_one_dispatcher(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Fake:
        def __init__(self, **_options: Any) -> None:
            made.append(self)
            threading.Event().wait(0.01)

        def start(self) -> None:
            """Nothing to start."""

    monkeypatch.setattr(dispatching, "_shared", None)
    monkeypatch.setattr(dispatching, "Dispatcher", Fake)
    threads = [threading.Thread(target=dispatching.shared_dispatcher) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 1


def test_a_process_that_was_frozen_longer_than_its_lease_does_not_send(sends: Sends) -> None:
    instance = sends.instance()
    message = sends.message(instance)
    late = Dispatcher(in_flight=1, clock=lambda: timezone.now())
    times = iter([timezone.now()] * 2)  # for the claim
    late._clock = lambda: next(times, timezone.now() + timedelta(seconds=60))
    late.start()

    late.wake(instance.pk)
    assert late.idle(timeout=10)
    assert late.stop(timeout=5)

    message.refresh_from_db()
    assert sends.texts() == []
    assert message.status == Status.QUEUED


def test_messages_of_a_removed_instance_fail_at_once() -> None:
    message = make_message(instance=make_instance(status="removed", status_changed_at=NOW))

    assert reconciling.reconcile_deadlines(now=NOW)["removed"] == 1

    message.refresh_from_db()
    assert (message.status, message.failure_code) == (Status.FAILED, "instance_removed")


def test_a_crowd_of_unconfirmed_messages_is_decided_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can be asked in time: the last moment decides all of them."""
    monkeypatch.setattr(reconciling, "LOOK_UP_SECONDS", 0.0)
    instance = make_instance()
    project = make_project(instance.tenant)
    for number in range(30):
        make_message(
            project, instance, id=f"u{number}", status="unconfirmed", attempted_at=NOW, next_attempt_at=NOW,
            deliver_until=NOW,
        )  # fmt: skip

    reconciling.resolve_unconfirmed(now=NOW + reconciling.LAST_MOMENT)

    assert set(Message.objects.values_list("failure_code", flat=True)) == {"outcome_unknown"}
    assert settling.FIRST_LOOK_UP < reconciling.LAST_MOMENT < timedelta(minutes=1)


def test_a_worker_killed_just_before_the_deadline_delays_the_end_by_less_than_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciling, "_ask", lambda messages, now: {})
    every = app.conf.beat_schedule["resolve-unconfirmed"]["schedule"]
    message = make_message(deliver_until=NOW + timedelta(seconds=1))
    claim([message.instance_id], now=NOW)

    ticks = (NOW + timedelta(seconds=seconds) for seconds in range(0, 120, int(every)))
    for now in ticks:
        reconciling.resolve_unconfirmed(now=now)
        message.refresh_from_db()
        if message.status == Status.FAILED:
            break

    assert message.failed_at is not None
    assert message.failed_at <= message.deliver_until + timedelta(minutes=1)
