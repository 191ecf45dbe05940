"""Stored calls become changes: each once, in any order, whatever else is in the batch."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from django.db import DataError, OperationalError, connection, transaction
from django.test import Client

from instances.models import Instance, Vitals
from messaging import receiving, status
from messaging.models import Contact, Message, MessageEvent, ParkedReceipt, ReceivedMessage
from messaging.receiving import Arrival
from messaging.status import Move
from tests.factories import NOW, make_instance, make_message, make_tenant
from tests.providers.recordings import DELIVERIES
from webhooks import applying, sweeps
from webhooks.models import InboundCall

pytestmark = pytest.mark.django_db

WORDS = {"sent": "SERVER_ACK", "delivered": "DELIVERY_ACK", "read": "READ", "failed": "ERROR"}


def store(instance: Instance, *bodies: Any) -> list[int]:
    raw = [body if isinstance(body, bytes) else json.dumps(body).encode() for body in bodies]
    events = [body.get("event", "") if isinstance(body, dict) else "" for body in bodies]
    calls = [
        InboundCall(instance=instance, event=event, body=body)
        for event, body in zip(events, raw, strict=True)
    ]
    return [call.pk for call in InboundCall.objects.bulk_create(calls)]


def receipt(provider_id: str, to: str) -> dict[str, Any]:
    data = {"keyId": provider_id, "remoteJid": "x@lid", "fromMe": True, "status": WORDS[to]}
    return {"event": "messages.update", "instance": "a1", "data": data}


def written(provider_id: str, text: str = "SIM") -> dict[str, Any]:
    data = {
        "key": {"remoteJid": "5511987654321@s.whatsapp.net", "fromMe": False, "id": provider_id},
        "pushName": "Maria",
        "message": {"conversation": text},
        "messageType": "conversation",
        "messageTimestamp": 1795966000,
    }
    return {"event": "messages.upsert", "instance": "a1", "data": data}


def connection_update(state: str) -> dict[str, Any]:
    return {"event": "connection.update", "instance": "a1", "data": {"state": state, "statusReason": 200}}


def handed_over(instance: Instance, provider_id: str = "3EB0") -> Message:
    return make_message(
        instance=instance, status="submitted", provider_message_id=provider_id, submitted_at=NOW
    )


def state(message: Message) -> str:
    message.refresh_from_db()
    return message.status


def errors() -> dict[int, str]:
    return dict(InboundCall.objects.exclude(error="").values_list("id", "error"))


# --- a batch ----------------------------------------------------------------------------------------------


def test_applies_what_is_stored_and_says_how_much() -> None:
    instance = make_instance()
    message = handed_over(instance)
    store(instance, receipt("3EB0", "delivered"), written("3A01"), {"event": "contacts.update", "data": []})

    assert applying.apply_pending(now=NOW) == 3

    assert state(message) == "delivered"
    assert ReceivedMessage.objects.get().text == "SIM"
    assert set(InboundCall.objects.values_list("applied_at", "error")) == {(NOW, "")}
    assert applying.apply_pending(now=NOW) == 0


def test_dates_news_by_when_the_call_came() -> None:
    instance = make_instance()
    message = handed_over(instance)
    store(instance, receipt("3EB0", "delivered"))
    InboundCall.objects.update(received_at=NOW)

    applying.apply_pending(now=NOW + timedelta(hours=1))

    assert state(message) == "delivered"
    assert message.delivered_at == NOW


def test_takes_the_oldest_first_and_no_more_than_the_limit() -> None:
    instance = make_instance()
    ids = store(instance, *(written(f"3A{n}") for n in range(5)))

    assert applying.apply_pending(now=NOW, limit=2) == 2

    assert list(InboundCall.objects.filter(applied_at=None).values_list("id", flat=True)) == ids[2:]


def test_opens_and_closes_the_instance_in_the_order_of_the_calls() -> None:
    instance = make_instance(status="connecting")
    store(instance, connection_update("open"), connection_update("close"))

    applying.apply_pending(now=NOW)

    instance.refresh_from_db()
    assert instance.status == "closed"


# --- bad items --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        b"not json",
        b"",
        b"[" * 20_000,
        b"[]",
        b'{"event": 7}',
        written("3A" * 200),
        receipt("3EB0" * 200, "read"),
    ],
    ids=["text", "empty", "deep", "list", "number", "long-id", "long-receipt"],
)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_bad_call_fails_alone(bad: Any, position: int) -> None:
    instance = make_instance()
    message = handed_over(instance)
    bodies: list[Any] = [receipt("3EB0", "read"), written("3A01")]
    bodies.insert(position, bad)
    ids = store(instance, *bodies)

    assert applying.apply_pending(now=NOW) == 3

    assert list(errors()) == [ids[position]]
    assert state(message) == "read"
    assert ReceivedMessage.objects.get().provider_message_id == "3A01"
    assert not InboundCall.objects.filter(applied_at=None).exists()
    assert applying.apply_pending(now=NOW) == 0


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_bad_item_does_not_take_the_good_ones_of_its_call_with_it(position: int) -> None:
    instance = make_instance()
    message = handed_over(instance)
    items = [receipt("3EB0", "sent")["data"], receipt("3EB0", "read")["data"]]
    items.insert(position, receipt("3EB0" * 200, "read")["data"])
    (call,) = store(instance, {"event": "messages.update", "data": items})

    assert applying.apply_pending(now=NOW) == 1

    assert state(message) == "read"
    assert "is no id" in errors()[call]
    assert InboundCall.objects.get().applied_at == NOW


@pytest.mark.parametrize("position", [0, 1, 2])
def test_what_the_database_refuses_does_not_take_the_good_items_of_its_call_with_it(
    position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the reasons that nobody thought of may be."""
    apply = receiving.apply

    def refusing(arrivals: Sequence[Arrival]) -> None:
        apply(arrivals)
        if any(getattr(arrival.event, "text", "") == "odd" for arrival in arrivals):
            raise DataError("no")

    monkeypatch.setattr(receiving, "apply", refusing)
    instance = make_instance()
    items = [written("3A01")["data"], written("3A02")["data"]]
    items.insert(position, written("3A03", text="odd")["data"])
    (call,) = store(instance, {"event": "messages.upsert", "data": items})

    assert applying.apply_pending(now=NOW) == 1

    kept = ReceivedMessage.objects.values_list("provider_message_id", flat=True)
    assert sorted(kept) == ["3A01", "3A02"]
    assert errors() == {call: "DataError: no"}


@pytest.mark.parametrize("text", ["nul \x00 in it", "\ud800 alone"])
def test_keeps_a_text_without_what_cannot_be_stored(text: str) -> None:
    store(make_instance(), written("3A02", text=text))

    applying.apply_pending(now=NOW)

    assert ReceivedMessage.objects.get().text == text.translate({0: "\ufffd", 0xD800: "\ufffd"})
    assert errors() == {}


def test_an_error_with_something_odd_in_it_can_be_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(_arrivals: Sequence[Arrival]) -> None:
        raise ValueError("nul \x00 " + "x" * 1000)

    monkeypatch.setattr(receiving, "apply", refusing)
    (call,) = store(make_instance(), written("3A01"))

    assert applying.apply_pending(now=NOW) == 1

    assert errors()[call] == ("ValueError: nul \ufffd " + "x" * 1000)[:500]


def test_an_instance_whose_provider_is_gone_does_not_stop_others() -> None:
    gone, instance = make_instance(provider="vanished"), make_instance()
    message = handed_over(instance)
    ids = store(gone, receipt("3EB0", "read")) + store(instance, receipt("3EB0", "read"))

    applying.apply_pending(now=NOW)

    assert list(errors()) == [ids[0]]
    assert state(message) == "read"


def test_a_call_can_be_applied_again_when_the_fault_is_mended() -> None:
    instance = make_instance(provider="vanished")
    message = handed_over(instance)
    store(instance, receipt("3EB0", "read"))
    applying.apply_pending(now=NOW)

    Instance.objects.filter(pk=instance.pk).update(provider="evolution")
    InboundCall.objects.update(applied_at=None)
    applying.apply_pending(now=NOW)

    assert state(message) == "read"
    assert errors() == {}


# --- what a real server sent, in any order ----------------------------------------------------------------


class Recording:
    """The recorded calls, the instances that they are about, and the messages whose sends they announce."""

    def __init__(self) -> None:
        tenant = make_tenant()
        self.calls = [(call["body"]["instance"], json.dumps(call["body"])) for call in DELIVERIES]
        self.instances = {name: make_instance(tenant) for name, _body in self.calls}
        self.messages = {key: self._sending(*key) for key in self._announced()}

    def _announced(self) -> list[tuple[str, str]]:
        """Every second message is not ours: somebody else uses the same number."""
        sends = [call["body"] for call in DELIVERIES if call["body"]["event"] == "send.message"]
        return sorted({(body["instance"], body["data"]["key"]["id"]) for body in sends})[::2]

    def _sending(self, name: str, _provider_id: str) -> Message:
        return make_message(instance=self.instances[name], status="sending", attempted_at=NOW)

    def post(self, name: str, body: str) -> None:
        path = f"/hooks/evolution/{self.instances[name].hook_token}"
        assert Client().post(path, body, content_type="application/json").status_code == 200

    def settle(self, key: tuple[str, str]) -> None:
        status.move(
            Move(message_id=self.messages[key].pk, to="submitted", at=NOW, provider_message_id=key[1])
        )

    def apply(self) -> None:
        while applying.apply_pending(now=NOW):
            pass
        ParkedReceipt.objects.update(next_look_at=NOW)
        receiving.apply_parked(now=NOW)

    def state(self) -> dict[str, Any]:
        names = {instance.pk: name for name, instance in self.instances.items()}
        parked = ParkedReceipt.objects.values_list("instance", "provider_message_id", "status")
        received = ReceivedMessage.objects.values_list("instance", "provider_message_id", "text", "at")
        return {
            "messages": {
                key: (state(message), message.failure_code, message.provider_message_id)
                for key, message in self.messages.items()
            },
            "parked": sorted((names[pk], *rest) for pk, *rest in parked),
            "received": sorted((names[pk], *rest) for pk, *rest in received),
            "contacts": sorted(Contact.objects.values_list("number", "recipient_id", "name")),
            "errors": list(errors()),
        }


@cache
def in_order_and_once() -> dict[str, Any]:
    with transaction.atomic():
        recording = Recording()
        for key in recording.messages:
            recording.settle(key)
        for call in recording.calls:
            recording.post(*call)
        recording.apply()
        outcome = recording.state()
        transaction.set_rollback(True)
    return outcome


def test_the_recorded_calls_come_to_what_they_should() -> None:
    outcome = in_order_and_once()

    reached = {status for status, _failure, _id in outcome["messages"].values()}
    assert reached >= {"submitted", "failed", "read"}
    assert [text for _name, _id, text, _at in outcome["received"]] == ["SIM", "Sim"]
    assert outcome["contacts"] == [("+5511987654321", "5511987654321@s.whatsapp.net", "Maria")]
    assert outcome["parked"]
    assert not outcome["errors"]


@pytest.mark.parametrize("seed", range(8))
def test_twice_and_in_any_order_they_come_to_the_same(seed: int) -> None:
    expected = in_order_and_once()
    chance = random.Random(seed)
    recording = Recording()
    steps: list[Callable[[], None]] = [
        *(lambda call=call: recording.post(*call) for call in recording.calls * 2),
        *(lambda key=key: recording.settle(key) for key in recording.messages),
        *[recording.apply] * 10,
    ]
    chance.shuffle(steps)

    for step in [*steps, recording.apply]:
        step()

    assert recording.state() == expected
    applied = MessageEvent.objects.filter(applied=True)
    assert applied.count() == applied.values("message", "kind").distinct().count()


# --- several processes, and processes that die ------------------------------------------------------------


def in_threads(count: int, work: Callable[[], None]) -> list[BaseException]:
    """Runs `work` in `count` threads at once, each with a connection of its own. Returns what they raised."""
    raised: list[BaseException] = []
    barrier = threading.Barrier(count)

    def run() -> None:
        barrier.wait()
        try:
            work()
        except BaseException as error:
            raised.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


@pytest.mark.django_db(transaction=True)
def test_several_appliers_share_the_work_and_do_it_once() -> None:
    chance = random.Random(7)
    instances = [make_instance() for _ in range(3)]
    messages = [handed_over(instance, f"3EB{n}") for instance in instances for n in range(10)]
    for instance in instances:
        bodies = [receipt(f"3EB{n}", to) for n in range(10) for to in ("sent", "delivered", "read")] * 2
        bodies += [written(f"3A{n}") for n in range(10)] * 2
        chance.shuffle(bodies)
        store(instance, *bodies)
    done: list[int] = []

    def work() -> None:
        while count := applying.apply_pending(now=NOW, limit=chance.randint(1, 20)):
            done.append(count)

    assert in_threads(4, work) == []

    assert sum(done) == InboundCall.objects.count() == 240
    assert errors() == {}
    assert {state(message) for message in messages} == {"read"}
    assert ReceivedMessage.objects.count() == 30
    assert Contact.objects.count() == 3
    applied = MessageEvent.objects.filter(applied=True)
    assert applied.count() == applied.values("message", "kind").distinct().count()


@pytest.mark.django_db(transaction=True)
def test_a_receipt_parked_while_the_answer_is_being_written_is_found() -> None:
    instance = make_instance()
    message = make_message(instance=instance, status="sending")
    store(instance, receipt("3EB0", "delivered"))

    with transaction.atomic():
        status.move(Move(message_id=message.pk, to="submitted", at=NOW, provider_message_id="3EB0"))
        # Another process, which cannot see the id yet.
        assert in_threads(1, lambda: assert_equal(applying.apply_pending(now=NOW), 1)) == []
    assert state(message) == "submitted"

    receiving.apply_parked(now=NOW + timedelta(days=1))

    assert state(message) == "delivered"


def assert_equal(one: object, other: object) -> None:
    assert one == other


@pytest.mark.django_db(transaction=True)
def test_older_news_of_a_connection_does_not_overtake_newer() -> None:
    instance = make_instance(status="connecting")
    older, _newer = store(instance, connection_update("close"), connection_update("open"))

    with transaction.atomic():
        # Another process holds the older call, and is slower.
        InboundCall.objects.select_for_update().get(pk=older)
        assert in_threads(1, lambda: assert_equal(applying.apply_pending(now=NOW), 1)) == []
    assert applying.apply_pending(now=NOW) == 1

    instance.refresh_from_db()
    assert instance.status == "open"


@pytest.mark.django_db(transaction=True)
def test_what_waits_for_a_lock_too_long_is_left_for_the_next_time() -> None:
    instance = make_instance()
    locked, free = handed_over(instance, "3EB0"), handed_over(instance, "3EB1")
    ids = store(instance, receipt("3EB0", "read"), receipt("3EB1", "read"))

    def apply_impatiently() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '50ms'")
        assert applying.apply_pending(now=NOW) == 1

    with transaction.atomic():
        Message.objects.select_for_update().get(pk=locked.pk)
        assert in_threads(1, apply_impatiently) == []

    assert (state(locked), state(free)) == ("submitted", "read")
    assert list(InboundCall.objects.filter(applied_at=None).values_list("id", flat=True)) == ids[:1]
    assert applying.apply_pending(now=NOW) == 1
    assert state(locked) == "read"
    assert errors() == {}


@contextmanager
def dying_at_the_end() -> Iterator[None]:
    """Ends the database session at the last statement of a batch, as a killed process would."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END$$;"
            "CREATE TRIGGER dying BEFORE UPDATE ON webhooks_inboundcall FOR EACH ROW EXECUTE FUNCTION die()"
        )
    try:
        yield
    finally:
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION die CASCADE")


@pytest.mark.django_db(transaction=True)
def test_a_batch_that_dies_half_way_is_applied_once_all_the_same() -> None:
    instance = make_instance()
    message = handed_over(instance)
    store(instance, receipt("3EB0", "read"), written("3A01"))

    with dying_at_the_end(), pytest.raises(OperationalError):
        applying.apply_pending(now=NOW)
    assert state(message) == "submitted"
    assert not ReceivedMessage.objects.exists()
    assert applying.apply_pending(now=NOW) == 2

    assert state(message) == "read"
    assert MessageEvent.objects.filter(message=message, kind="read").count() == 1
    assert ReceivedMessage.objects.count() == 1


# --- signs of life ----------------------------------------------------------------------------------------


def vitals_of(instance: Instance) -> tuple[Any, ...]:
    return Vitals.objects.values_list("heard_at", "acknowledged_at", "unheard").get(instance=instance)


def test_notes_when_an_instance_was_heard_and_when_it_proved_to_deliver() -> None:
    instance = make_instance()
    handed_over(instance)
    Vitals.objects.create(instance=instance, unheard=7)
    (first,) = store(instance, receipt("3EB0", "delivered"))
    (second,) = store(instance, connection_update("connecting"))
    InboundCall.objects.filter(pk=first).update(received_at=NOW)
    InboundCall.objects.filter(pk=second).update(received_at=NOW + timedelta(seconds=1))

    applying.apply_pending(now=NOW)

    assert vitals_of(instance) == (NOW + timedelta(seconds=1), NOW, 0)


def test_late_calls_do_not_make_signs_of_life_older() -> None:
    instance = make_instance()
    later = NOW + timedelta(days=1)
    Vitals.objects.create(instance=instance, heard_at=later, acknowledged_at=later)
    (call,) = store(instance, receipt("3EB0", "read"))
    InboundCall.objects.filter(pk=call).update(received_at=NOW)

    applying.apply_pending(now=NOW)

    assert vitals_of(instance) == (later, later, 0)


def test_a_failure_proves_no_delivery() -> None:
    instance = make_instance()
    store(instance, receipt("3EB0", "failed"))

    applying.apply_pending(now=NOW)

    assert vitals_of(instance)[1] is None


def test_the_full_reconciler_applies_what_has_waited_for_long() -> None:
    instance = make_instance()
    old, _fresh = store(instance, receipt("A", "sent"), receipt("B", "sent"))
    InboundCall.objects.update(received_at=NOW)
    InboundCall.objects.filter(pk=old).update(received_at=NOW - timedelta(minutes=2))

    assert list(sweeps.apply_calls(NOW)) == [{"calls_applied": 2}]
    assert list(sweeps.apply_calls(NOW)) == []


def test_the_full_reconciler_leaves_fresh_calls_to_the_consumer() -> None:
    store(make_instance(), receipt("A", "sent"))
    InboundCall.objects.update(received_at=NOW)

    assert list(sweeps.apply_calls(NOW)) == []
    assert InboundCall.objects.filter(applied_at=None).count() == 1
