"""Receipts that did not come by themselves are asked for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from instances.models import Instance, Vitals
from messaging import acknowledging
from messaging.models import Message, MessageEvent
from tests.factories import NOW, make_instance, make_message
from tests.messaging.sends import Sends, timeline
from tests.sandbox.emulator import eventually

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def taken_over(instance: Instance | None = None, **fields: Any) -> Message:
    """A message that the provider has had for a minute, and of which nothing was heard."""
    values = {
        "status": "submitted",
        "submitted_at": NOW - MINUTE,
        "next_attempt_at": NOW,
        "provider_message_id": "3EB0AA",
    }
    return make_message(instance=instance, **values | fields)


def sent_and_asked(sends: Sends, **fault: Any) -> tuple[Message, dict[str, int]]:
    """A message whose webhooks nobody receives, asked about once its receipts are at the provider."""
    if fault:
        sends.emulator.arm(**fault)
    instance = sends.instance()
    message = sends.message(instance)
    sends.run(instance)
    (entry,) = sends.emulator.ledger()
    wanted = {"stay_pending": "PENDING", "error_receipt": "ERROR"}.get(fault.get("kind", ""), "READ")
    eventually(lambda: recorded(sends, instance, entry["key_id"]) == wanted)
    counts = acknowledging.ask(now=timezone.now() + timedelta(seconds=61))
    message.refresh_from_db()
    return message, counts


def recorded(sends: Sends, instance: Instance, key_id: str) -> str:
    """The last update that Evolution stored of a message."""
    where = {"where": {"key": {"id": key_id}}}
    answer = sends.emulator.api.post(f"/chat/findMessages/{instance.provider_name}", json=where)
    (record,) = answer.json()["messages"]["records"]
    updates: list[dict[str, str]] = record["MessageUpdate"]
    return updates[-1]["status"] if updates else "PENDING"


def test_learns_from_the_provider_what_no_webhook_said(sends: Sends) -> None:
    message, counts = sent_and_asked(sends)

    assert (message.status, message.next_attempt_at) == ("read", None)
    assert counts == {"asked": 1, "proved": 1, "failed": 0, "unanswered": 0}
    assert MessageEvent.objects.get(message=message, kind="read").detail == {"why": "look_up"}
    assert len(sends.emulator.ledger()) == 1


def test_asks_again_later_when_the_provider_knows_no_more(sends: Sends) -> None:
    message, counts = sent_and_asked(sends, kind="stay_pending")

    assert (message.status, counts["asked"], counts["proved"]) == ("submitted", 1, 0)
    assert message.next_attempt_at is not None
    assert message.next_attempt_at > timezone.now() + MINUTE
    assert timeline(message) == ["sending", "submitted"]


def test_learns_that_whatsapp_refused_it(sends: Sends) -> None:
    message, counts = sent_and_asked(sends, kind="error_receipt")

    assert (message.status, message.failure_code, counts["failed"]) == ("failed", "undeliverable", 1)
    assert not Vitals.objects.filter(unheard__gt=0).exists()


def test_counts_the_receipts_that_only_asking_brought(sends: Sends) -> None:
    message, _counts = sent_and_asked(sends)

    vitals = Vitals.objects.get(instance=message.instance_id)
    assert (vitals.heard_at, vitals.unheard) == (None, 1)
    assert vitals.acknowledged_at is not None


def test_does_not_ask_before_a_receipt_is_overdue(sends: Sends) -> None:
    instance = sends.instance()
    sends.message(instance)
    sends.run(instance)

    assert acknowledging.ask(now=timezone.now() + timedelta(seconds=50))["asked"] == 0


@pytest.mark.parametrize(
    ("age", "until_next"),
    [
        pytest.param(timedelta(seconds=1), MINUTE, id="at least a minute"),
        pytest.param(timedelta(minutes=8), timedelta(minutes=8), id="as long as has passed"),
        pytest.param(timedelta(hours=9), timedelta(hours=6), id="at most six hours"),
        pytest.param(timedelta(hours=25), None, id="never after a day"),
    ],
)
def test_questions_grow_apart_and_end(age: timedelta, until_next: timedelta | None) -> None:
    message = taken_over(submitted_at=NOW - age)

    acknowledging.ask(now=NOW)

    message.refresh_from_db()
    assert message.status == "submitted"
    assert message.next_attempt_at == (until_next and NOW + until_next)


def test_a_provider_that_does_not_answer_changes_nothing() -> None:
    message = taken_over()

    counts = acknowledging.ask(now=NOW)

    message.refresh_from_db()
    assert (message.status, counts["asked"], counts["unanswered"]) == ("submitted", 1, 1)
    assert not Vitals.objects.exists()


def test_what_cannot_be_asked_about_is_left_alone() -> None:
    nameless = taken_over(provider_message_id=None)
    gone = taken_over(make_instance(status="removed"))
    unusable = taken_over(make_instance(provider="vanished"))

    assert acknowledging.ask(now=NOW)["asked"] == 0

    waits = [Message.objects.get(pk=message.pk).next_attempt_at for message in (nameless, gone, unusable)]
    assert waits == [None, NOW + MINUTE, NOW + MINUTE]


@pytest.mark.parametrize("state", ["queued", "unconfirmed", "delivered"])
def test_leaves_alone_what_is_not_waiting_for_a_receipt(state: str) -> None:
    message = taken_over(status=state)

    assert acknowledging.ask(now=NOW)["asked"] == 0

    message.refresh_from_db()
    assert message.next_attempt_at == NOW


@pytest.mark.django_db(transaction=True)
def test_two_at_once_ask_once() -> None:
    instance = make_instance()
    for number in range(30):
        taken_over(instance, provider_message_id=f"3EB0{number}")

    with ThreadPoolExecutor(2) as pool:
        asked = sum(pool.map(ask_in_thread, [NOW, NOW]))

    assert asked == 30


def ask_in_thread(now: datetime) -> int:
    try:
        return acknowledging.ask(now=now)["asked"]
    finally:
        connection.close()
