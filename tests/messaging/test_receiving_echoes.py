"""A send whose answer was lost, and the provider's own announcement of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from instances.models import Instance
from instances.providers.base import StatusEvent
from messaging import receiving, status
from messaging.models import Message, ParkedReceipt
from messaging.receiving import Arrival
from messaging.status import Move
from tests.factories import NOW, make_instance, make_message

pytestmark = pytest.mark.django_db

RECIPIENT = "5511999990000@s.whatsapp.net"
LATER = NOW + timedelta(minutes=5)


def sending(instance: Instance, *, at: datetime = NOW, **fields: Any) -> Message:
    """A message whose send started at `at`."""
    message = make_message(instance=instance, **fields)
    lease = {"new_lease": uuid4(), "lease_until": at + timedelta(minutes=1)}
    status.move(Move(message_id=message.pk, to="sending", at=at, **lease))
    message.refresh_from_db()
    return message


def lose_answer(message: Message) -> None:
    status.move(
        Move(
            message_id=message.pk,
            to="unconfirmed",
            at=NOW,
            lease_token=message.lease_token,
            next_attempt_at=NOW,
        )
    )


def unconfirmed(instance: Instance, **fields: Any) -> Message:
    message = sending(instance, **fields)
    lose_answer(message)
    return message


def echo(
    instance: Instance,
    provider_id: str = "3EB0",
    *,
    text: str = "Olá",
    recipient_id: str = RECIPIENT,
    at: datetime = NOW + timedelta(seconds=1),
) -> None:
    event = StatusEvent(provider_id, "submitted", recipient_id=recipient_id, text=text)
    receiving.apply([Arrival(instance, event, at)])


def outcome(message: Message) -> tuple[str, str | None]:
    message.refresh_from_db()
    return message.status, message.provider_message_id


LOST = ("unconfirmed", None)


def test_an_echo_proves_that_an_unconfirmed_message_went_out() -> None:
    instance = make_instance()
    message = unconfirmed(instance)
    echo(instance)

    assert receiving.apply_parked(now=LATER) == 1

    assert outcome(message) == ("submitted", "3EB0")
    assert message.recipient_id == RECIPIENT
    assert message.submitted_at == NOW + timedelta(seconds=1)
    assert not ParkedReceipt.objects.exists()


def test_receipts_that_waited_with_the_echo_follow_at_once() -> None:
    instance = make_instance()
    message = sending(instance)
    echo(instance)
    receiving.apply([Arrival(instance, StatusEvent("3EB0", "read"), NOW)])
    receiving.apply_parked(now=LATER)  # not known yet, so it is looked at again only after as long a time
    lose_answer(message)

    receiving.apply_parked(now=LATER + timedelta(seconds=1))

    assert outcome(message) == ("read", "3EB0")


def test_an_echo_leaves_a_send_that_is_under_way_to_its_answer() -> None:
    instance = make_instance()
    message = sending(instance)
    echo(instance)

    receiving.apply_parked(now=LATER)

    assert outcome(message) == ("sending", None)
    lose_answer(message)
    receiving.apply_parked(now=LATER)
    assert outcome(message) == ("submitted", "3EB0")


def test_the_answer_may_come_after_its_echo() -> None:
    instance = make_instance()
    message = sending(instance)
    echo(instance)
    answer = Move(message_id=message.pk, to="submitted", at=NOW, provider_message_id="3EB0")
    status.move(answer)

    assert receiving.apply_parked(now=LATER) == 1

    assert outcome(message) == ("submitted", "3EB0")
    assert message.events.filter(kind="submitted").count() == 1


@pytest.mark.parametrize(
    ("to", "recipient_id"),
    [
        ("+5547988887777", "554788887777@s.whatsapp.net"),
        ("+554788887777", "5547988887777@s.whatsapp.net"),
        ("+5511999990000", "5511999990000:12@s.whatsapp.net"),
        ("+351912345678", "351912345678@s.whatsapp.net"),
    ],
)
def test_an_echo_fits_whatever_form_the_number_has(to: str, recipient_id: str) -> None:
    instance = make_instance()
    message = unconfirmed(instance, to=to)
    echo(instance, recipient_id=recipient_id)

    receiving.apply_parked(now=LATER)

    assert outcome(message) == ("submitted", "3EB0")


def test_an_echo_fits_the_providers_own_id_of_the_recipient() -> None:
    instance = make_instance()
    message = unconfirmed(instance, recipient_id="123456789012345@lid")
    echo(instance, recipient_id="123456789012345@lid")

    receiving.apply_parked(now=LATER)

    assert outcome(message) == ("submitted", "3EB0")


def test_an_echo_fits_what_the_provider_made_of_title_and_buttons() -> None:
    content = {
        "title": "Pedido",
        "text": "Confirma?",
        "buttons": [{"kind": "reply", "label": "Sim", "value": "yes"}],
        "footer": "Loja",
    }
    instance = make_instance()
    message = unconfirmed(instance, content=content)
    echo(instance, text="*Pedido*\n\nConfirma?\n\n1 – Sim\n\n_Loja_")

    receiving.apply_parked(now=LATER)

    assert outcome(message) == ("submitted", "3EB0")


def test_space_around_the_text_makes_no_difference() -> None:
    instance = make_instance()
    message = unconfirmed(instance, content={"text": " Olá\n"})
    echo(instance, text="Olá\n\n")

    receiving.apply_parked(now=LATER)

    assert outcome(message) == ("submitted", "3EB0")


@pytest.mark.parametrize(
    "different",
    [
        {"text": "Olá!"},
        {"text": ""},
        {"recipient_id": "5511999990001@s.whatsapp.net"},
        {"recipient_id": "123456789012345@lid"},
        {"recipient_id": ""},
        {"at": NOW - timedelta(seconds=6)},
        {"at": NOW + timedelta(minutes=31)},
    ],
)
def test_an_echo_of_something_else_proves_nothing(different: dict[str, Any]) -> None:
    instance = make_instance()
    message = unconfirmed(instance)
    echo(instance, **different)

    assert receiving.apply_parked(now=NOW + timedelta(hours=1)) == 0

    assert outcome(message) == LOST


def test_an_echo_leaves_a_send_under_way_even_where_another_answer_was_lost() -> None:
    instance = make_instance()
    unconfirmed(instance, content={"text": "Tchau"})
    message = sending(instance)
    echo(instance)

    receiving.apply_parked(now=LATER)

    assert outcome(message) == ("sending", None)


def test_an_echo_on_another_instance_proves_nothing() -> None:
    message, neighbour = unconfirmed(make_instance()), unconfirmed(make_instance())
    echo(neighbour.instance)

    receiving.apply_parked(now=LATER)

    assert (outcome(message), outcome(neighbour)) == (LOST, ("submitted", "3EB0"))


@pytest.mark.parametrize("make_twin", [sending, unconfirmed])
def test_of_two_equal_texts_in_flight_an_echo_proves_neither(make_twin: Any) -> None:
    instance = make_instance()
    message, twin = unconfirmed(instance), make_twin(instance)
    before = outcome(twin)
    echo(instance)

    receiving.apply_parked(now=LATER)

    assert (outcome(message), outcome(twin)) == (LOST, before)


def test_two_echoes_of_one_text_prove_nothing() -> None:
    instance = make_instance()
    message = unconfirmed(instance)
    echo(instance, "3EB0")
    echo(instance, "3EB1")

    receiving.apply_parked(now=LATER)

    assert outcome(message) == LOST


def test_what_is_left_when_the_twin_is_answered_is_proof() -> None:
    instance = make_instance()
    message, twin = unconfirmed(instance), sending(instance)
    echo(instance, "3EB0")
    echo(instance, "3EB1")
    status.move(Move(message_id=twin.pk, to="submitted", at=NOW, provider_message_id="3EB0"))

    receiving.apply_parked(now=LATER)

    assert outcome(twin) == ("submitted", "3EB0")
    assert outcome(message) == ("submitted", "3EB1")


def test_the_echo_of_an_earlier_attempt_does_not_prove_a_later_one() -> None:
    instance = make_instance()
    message = unconfirmed(instance)
    echo(instance)
    status.move(Move(message_id=message.pk, to="queued", at=NOW))
    lease = {"new_lease": uuid4(), "lease_until": LATER}
    status.move(Move(message_id=message.pk, to="sending", at=NOW + timedelta(minutes=1), **lease))
    message.refresh_from_db()
    lose_answer(message)

    receiving.apply_parked(now=LATER)

    assert outcome(message) == LOST
