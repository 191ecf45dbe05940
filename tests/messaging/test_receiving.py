"""Receipts and people's messages: what they change, in whatever order and number they come."""

from __future__ import annotations

import itertools
import random
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import Event
from instances.models import Instance
from instances.providers.base import InboundMessage, StatusEvent
from messaging import receiving, status
from messaging.models import Contact, Message, MessageEvent, ParkedReceipt, ReceivedMessage
from messaging.receiving import Arrival
from messaging.status import Move
from tests.factories import NOW, make_instance, make_message, make_tenant

pytestmark = pytest.mark.django_db

CHAIN = ("submitted", "sent", "delivered", "read", "played")


def receipt(message: Message, to: str, *, at: datetime = NOW, **fields: Any) -> Arrival:
    event = StatusEvent(provider_message_id=message.provider_message_id or "", status=to, **fields)
    return Arrival(message.instance, event, at)


def early(instance: Instance, to: str, *, provider_id: str = "3EB0", at: datetime = NOW) -> Arrival:
    return Arrival(instance, StatusEvent(provider_message_id=provider_id, status=to), at)


def written(instance: Instance, *, arrived: datetime = NOW, **fields: Any) -> Arrival:
    """Maria writes to the instance."""
    values: dict[str, Any] = {
        "provider_message_id": "3A01",
        "sender_id": "5511987654321@s.whatsapp.net",
        "sender_number": "+5511987654321",
        "sender_name": "Maria",
        "kind": "conversation",
        "text": "SIM",
        "at": NOW,
        "raw": {"message": {"conversation": "SIM"}},
    }
    return Arrival(instance, InboundMessage(**values | fields), arrived)


def handed_over(**fields: Any) -> Message:
    return make_message(
        **{"status": "submitted", "provider_message_id": "3EB0", "submitted_at": NOW} | fields
    )


def claimed(message: Message) -> UUID:
    token = uuid4()
    later = NOW + timedelta(minutes=1)
    status.move(Move(message_id=message.pk, to="sending", at=NOW, new_lease=token, lease_until=later))
    return token


def state(message: Message) -> str:
    message.refresh_from_db()
    return message.status


# --- receipts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", CHAIN[1:])
def test_a_receipt_moves_its_message(to: str) -> None:
    message = handed_over()

    receiving.apply([receipt(message, to, at=NOW + timedelta(seconds=3))])

    assert state(message) == to
    assert getattr(message, f"{to}_at") == NOW + timedelta(seconds=3)


@pytest.mark.parametrize("order", list(itertools.permutations(CHAIN[1:4])))
def test_receipts_of_one_batch_end_at_the_furthest_in_any_order(order: tuple[str, ...]) -> None:
    message = handed_over()

    receiving.apply([receipt(message, to) for to in order])

    assert state(message) == "read"


@pytest.mark.parametrize("seed", range(20))
def test_repeated_receipts_in_any_batches_end_at_the_furthest(seed: int) -> None:
    shuffled = random.Random(seed)
    message = handed_over()
    seen = shuffled.sample(CHAIN, shuffled.randint(1, len(CHAIN)))
    feed = [receipt(message, to) for to in seen * 3]
    shuffled.shuffle(feed)
    while feed:
        size = shuffled.randint(1, 4)
        receiving.apply(feed[:size])
        feed = feed[size:]

    assert state(message) == max(seen, key=CHAIN.index)
    applied = MessageEvent.objects.filter(message=message, applied=True)
    assert applied.count() == applied.values("kind").distinct().count()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sending", "failed"),
        ("unconfirmed", "failed"),
        ("submitted", "failed"),
        ("sent", "failed"),
        ("delivered", "delivered"),
        ("read", "read"),
        ("played", "played"),
        ("cancelled", "cancelled"),
    ],
)
def test_an_error_counts_only_before_delivery(before: str, after: str) -> None:
    message = handed_over(status=before)

    receiving.apply([receipt(message, "failed", detail="error ack")])

    assert state(message) == after
    assert message.failure_code == ("undeliverable" if after == "failed" else "")


@pytest.mark.parametrize("order", [("failed", "delivered"), ("delivered", "failed")])
def test_proof_of_delivery_beats_an_error_in_any_order(order: tuple[str, str]) -> None:
    message = handed_over()

    receiving.apply([receipt(message, to) for to in order])

    assert (state(message), message.failure_code, message.failed_at) == ("delivered", "", None)


def test_a_failure_keeps_the_providers_reason_but_not_the_text_in_the_timeline() -> None:
    message = handed_over()

    receiving.apply([receipt(message, "failed", code="463", detail="reach-out time-lock", text="Olá")])

    assert state(message) == "failed"
    assert message.failure_detail == "reach-out time-lock"
    assert MessageEvent.objects.get(message=message).detail == {
        "code": "463",
        "reason": "reach-out time-lock",
    }


def test_a_receipt_overtaking_the_answer_leaves_the_lease_to_the_sender() -> None:
    message = make_message(provider_message_id="3EB0")
    token = claimed(message)

    receiving.apply([receipt(message, "read")])

    assert state(message) == "read"
    assert message.lease_token == token


def test_an_id_is_known_only_on_its_own_instance() -> None:
    message = handed_over()
    stranger = make_instance()

    receiving.apply([early(stranger, "read")])

    assert state(message) == "submitted"
    assert ParkedReceipt.objects.get().instance == stranger


def test_receipts_of_many_instances_share_a_batch() -> None:
    messages = [handed_over() for _ in range(5)]

    receiving.apply([receipt(message, "delivered") for message in messages])

    assert {state(message) for message in messages} == {"delivered"}


def test_a_large_batch_costs_as_many_statements_as_one_receipt() -> None:
    def statements(messages: list[Message]) -> int:
        with CaptureQueriesContext(connection) as captured:
            receiving.apply([receipt(message, "delivered") for message in messages])
        return len(captured)

    assert statements([handed_over() for _ in range(20)]) == statements([handed_over()])


# --- parked receipts --------------------------------------------------------------------------------------


def test_an_unknown_id_is_parked_once() -> None:
    instance = make_instance()

    for _ in range(2):
        receiving.apply([early(instance, "delivered"), early(instance, "delivered"), early(instance, "read")])

    assert sorted(ParkedReceipt.objects.values_list("status", flat=True)) == ["delivered", "read"]


@pytest.mark.parametrize("order", list(itertools.permutations(("sent", "delivered", "read"))))
def test_parked_receipts_are_applied_when_their_message_appears(order: tuple[str, ...]) -> None:
    message = make_message(status="sending")
    receiving.apply([early(message.instance, to) for to in order])
    assert receiving.apply_parked(now=NOW) == 0

    status.move(Move(message_id=message.pk, to="submitted", at=NOW, provider_message_id="3EB0"))

    assert receiving.apply_parked(now=NOW + timedelta(seconds=1)) == 3
    assert state(message) == "read"
    assert not ParkedReceipt.objects.exists()
    assert receiving.apply_parked(now=NOW + timedelta(days=1)) == 0


def test_looks_at_a_parked_receipt_grow_apart() -> None:
    receiving.apply([early(make_instance(), "delivered")])
    looks = [NOW]
    while len(looks) < 14:
        receiving.apply_parked(now=looks[-1])
        looks.append(ParkedReceipt.objects.get().next_look_at)

    seconds = [(look - NOW).total_seconds() for look in looks]
    assert seconds == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1624, 2224]


def test_what_a_repetition_adds_to_a_parked_receipt_is_kept() -> None:
    instance = make_instance()
    said: list[dict[str, str]] = [{"code": "1"}, {"text": "Olá"}, {}, {"recipient_id": "x@lid"}]
    news = [StatusEvent("3EB0", "submitted", **fields) for fields in said]

    receiving.apply([Arrival(instance, event, NOW) for event in news[:2]])
    receiving.apply([Arrival(instance, event, NOW) for event in news[2:]])

    assert ParkedReceipt.objects.get().detail == {"code": "1", "text": "Olá", "recipient_id": "x@lid"}


def test_a_parked_error_fails_its_message() -> None:
    message = make_message(status="sending")
    event = StatusEvent(provider_message_id="3EB0", status="failed", detail="error ack")
    receiving.apply([Arrival(message.instance, event, NOW)])
    status.move(Move(message_id=message.pk, to="submitted", at=NOW, provider_message_id="3EB0"))

    receiving.apply_parked(now=NOW)

    assert state(message) == "failed"
    assert (message.failure_code, message.failure_detail) == ("undeliverable", "error ack")


def test_a_parked_receipt_keeps_the_time_it_came() -> None:
    message = make_message(status="sending")
    receiving.apply([early(message.instance, "delivered", at=NOW)])
    later = NOW + timedelta(minutes=2)
    status.move(Move(message_id=message.pk, to="submitted", at=later, provider_message_id="3EB0"))

    receiving.apply_parked(now=later)

    assert state(message) == "delivered"
    assert message.delivered_at == NOW


def test_no_more_than_the_limit_is_applied_at_once() -> None:
    messages = [make_message(status="sending") for _ in range(3)]
    receiving.apply([early(message.instance, "delivered") for message in messages])
    for message in messages:
        status.move(Move(message_id=message.pk, to="submitted", at=NOW, provider_message_id="3EB0"))

    assert [receiving.apply_parked(now=NOW, limit=2) for _ in range(3)] == [2, 1, 0]


def test_a_receipt_nobody_claims_is_dropped_after_seven_days() -> None:
    instance = make_instance()
    receiving.apply([early(instance, "delivered"), early(instance, "read", at=NOW + timedelta(days=1))])

    receiving.apply_parked(now=NOW + timedelta(days=7, seconds=1))

    assert ParkedReceipt.objects.get().status == "read"


# --- people's messages ------------------------------------------------------------------------------------


def test_a_persons_message_is_kept_once() -> None:
    instance = make_instance()

    receiving.apply([written(instance), written(instance)])
    receiving.apply([written(instance)])

    message = ReceivedMessage.objects.get()
    assert (message.tenant, message.instance) == (instance.tenant, instance)
    assert (message.sender_number, message.kind, message.text) == ("+5511987654321", "conversation", "SIM")
    assert message.raw == {"message": {"conversation": "SIM"}}


def test_a_message_without_a_time_gets_the_time_it_came() -> None:
    receiving.apply([written(make_instance(), arrived=NOW + timedelta(seconds=9), at=None)])

    assert ReceivedMessage.objects.get().at == NOW + timedelta(seconds=9)


def test_whoever_writes_becomes_a_contact() -> None:
    instance = make_instance()

    receiving.apply([written(instance)])

    contact = Contact.objects.get()
    assert (contact.tenant, contact.number, contact.name) == (instance.tenant, "+5511987654321", "Maria")
    assert contact.recipient_id == "5511987654321@s.whatsapp.net"


def test_the_ninth_digit_does_not_make_a_second_contact() -> None:
    instance = make_instance()
    without = {"sender_number": "+554788887777", "sender_id": "554788887777@s.whatsapp.net"}
    Contact.objects.create(tenant=instance.tenant, number="+5547988887777")

    receiving.apply([written(instance, **without)])

    contact = Contact.objects.get()
    assert (contact.number, contact.recipient_id) == ("+5547988887777", "554788887777@s.whatsapp.net")


def test_what_the_tenant_calls_a_person_is_kept() -> None:
    instance = make_instance()
    Contact.objects.create(tenant=instance.tenant, number="+5511987654321", name="Dona Maria")

    receiving.apply([written(instance), written(instance, provider_message_id="3A02")])

    assert Contact.objects.get().name == "Dona Maria"


def test_a_nameless_message_does_not_hide_the_name_in_the_same_batch() -> None:
    instance = make_instance()

    receiving.apply([written(instance, sender_name=""), written(instance, provider_message_id="3A02")])

    assert Contact.objects.get().name == "Maria"


def test_a_hidden_number_leaves_a_message_but_no_contact() -> None:
    hidden = {"sender_number": "", "sender_id": "123456789012345@lid"}

    receiving.apply([written(make_instance(), **hidden)])

    assert ReceivedMessage.objects.get().sender_id == "123456789012345@lid"
    assert not Contact.objects.exists()


def test_a_person_is_a_contact_of_each_tenant_apart() -> None:
    first, second = make_instance(make_tenant()), make_instance(make_tenant())

    receiving.apply([written(first), written(second)])

    assert set(Contact.objects.values_list("tenant", flat=True)) == {first.tenant_id, second.tenant_id}


# --- what the tenant's programs hear ---


def test_tells_of_a_new_message_once() -> None:
    instance = make_instance()

    receiving.apply([written(instance), written(instance), written(instance, provider_message_id="3A02")])
    receiving.apply([written(instance)])

    told = list(Event.objects.order_by("id"))
    kept = ReceivedMessage.objects.get(provider_message_id="3A01")
    assert [event.detail["provider_message_id"] for event in told] == ["3A01", "3A02"]
    assert {event.kind for event in told} == {"message.received"}
    assert told[0].tenant == instance.tenant
    assert told[0].detail == {
        "id": str(kept.pk),
        "instance": instance.name,
        "from": "+5511987654321",
        "sender_id": "5511987654321@s.whatsapp.net",
        "kind": "conversation",
        "text": "SIM",
        "provider_message_id": "3A01",
        "received_at": NOW.isoformat(),
    }
