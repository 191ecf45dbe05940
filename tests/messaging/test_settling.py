"""What each outcome of a call does to its message and its lane (the table of DESIGN §4)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from instances import breaking
from instances.models import InstanceStatus, Lane
from instances.providers.base import Outcome, ProviderError, Receipt
from messaging import gates, settling
from messaging.claiming import Claim, claim
from messaging.models import Message, MessageEvent, Status
from messaging.settling import Settlement
from messaging.status import Move, move
from tests.factories import NOW, make_instance, make_message

pytestmark = pytest.mark.django_db

ACCEPTED = Receipt(provider_message_id="3EB0AA", recipient_id="551199@s.whatsapp.net", status="submitted")


def claimed(**fields: Any) -> tuple[Message, Claim]:
    message = make_message(**fields)
    (each,) = claim([message.instance_id], now=NOW)
    return message, each


def settle(each: Claim, result: Any) -> None:
    settling.settle([Settlement(each, result)], now=NOW)


def error(outcome: Outcome, code: str = "rejected", **fields: Any) -> ProviderError:
    return ProviderError(code, "what the provider said", outcome=outcome, **fields)


def in_flight(message: Message) -> int:
    return Lane.objects.get(instance=message.instance_id).in_flight


def test_accepted_becomes_submitted_with_the_providers_ids() -> None:
    message, each = claimed()

    settle(each, ACCEPTED)

    message.refresh_from_db()
    assert (message.status, message.submitted_at) == (Status.SUBMITTED, NOW)
    assert (message.provider_message_id, message.recipient_id) == ("3EB0AA", "551199@s.whatsapp.net")
    assert (message.lease_token, message.lease_until, in_flight(message)) == (None, None, 0)


@pytest.mark.parametrize(
    ("code", "failure"),
    [("not_on_whatsapp", "not_on_whatsapp"), ("rejected", "rejected"), ("unheard_of", "rejected")],
)
def test_rejected_fails_with_a_code_of_the_closed_list(code: str, failure: str) -> None:
    message, each = claimed()

    settle(each, error(Outcome.REJECTED, code))

    message.refresh_from_db()
    assert (message.status, message.failure_code, message.failed_at) == (Status.FAILED, failure, NOW)
    assert message.failure_detail == "what the provider said"


def test_retry_waits_in_the_queue_with_back_off() -> None:
    message, each = claimed()

    settle(each, error(Outcome.RETRY))

    message.refresh_from_db()
    assert (message.status, message.attempts, in_flight(message)) == (Status.QUEUED, 1, 0)
    assert message.next_attempt_at is not None
    assert timedelta(seconds=24) <= message.next_attempt_at - NOW <= timedelta(seconds=36)
    event = MessageEvent.objects.filter(message=message).latest("id")
    assert (event.kind, event.detail["why"], event.detail["attempt"]) == ("queued", "retry", 1)


def test_retry_ends_with_the_tenth_attempt() -> None:
    message, each = claimed(attempts=9)

    settle(each, error(Outcome.RETRY))

    message.refresh_from_db()
    assert (message.status, message.failure_code) == (Status.FAILED, "attempts_exhausted")


def test_retry_past_the_deadline_is_no_retry() -> None:
    message, each = claimed(deliver_until=NOW + timedelta(seconds=10))

    settle(each, error(Outcome.RETRY))

    message.refresh_from_db()
    assert (message.status, message.failure_code) == (Status.FAILED, "expired")


def test_instance_down_costs_no_attempt_and_closes_the_gate() -> None:
    message, each = claimed()

    settle(each, error(Outcome.INSTANCE_DOWN, "instance_disconnected"))

    message.refresh_from_db()
    assert (message.status, message.attempts, message.next_attempt_at) == (Status.QUEUED, 0, None)
    assert message.instance.status == InstanceStatus.DEGRADED
    assert claim([message.instance_id], now=NOW) == []


def test_unknown_is_unconfirmed_and_never_queued() -> None:
    message, each = claimed()

    settle(each, error(Outcome.UNKNOWN, "no_answer"))

    message.refresh_from_db()
    assert (message.status, in_flight(message)) == (Status.UNCONFIRMED, 0)
    assert message.next_attempt_at == NOW + settling.FIRST_LOOK_UP
    assert claim([message.instance_id], now=NOW + timedelta(minutes=1)) == []


def test_a_deadline_that_passes_before_the_call_fails_the_message() -> None:
    message, each = claimed()

    settle(each, gates.Refusal("deadline", "expired"))

    message.refresh_from_db()
    assert (message.status, message.failure_code, in_flight(message)) == (Status.FAILED, "expired", 0)


def test_a_receipt_that_overtakes_the_answer_is_not_undone() -> None:
    message, each = claimed()
    move(Move(message_id=message.pk, to=Status.DELIVERED, at=NOW))

    settle(each, ACCEPTED)

    message.refresh_from_db()
    assert (message.status, message.provider_message_id) == (Status.DELIVERED, "3EB0AA")
    assert in_flight(message) == 0


def test_settling_twice_frees_the_lane_once() -> None:
    instance = make_instance(concurrency=2)
    _first, each = claimed(instance=instance)
    _second, _other = claimed(instance=instance)

    settle(each, ACCEPTED)
    settle(each, ACCEPTED)

    assert Lane.objects.get(instance=instance).in_flight == 1


def test_one_provider_id_for_two_messages_does_not_lose_either() -> None:
    instance = make_instance(concurrency=2)
    first, one = claimed(instance=instance)
    second, two = claimed(instance=instance)

    settling.settle([Settlement(one, ACCEPTED), Settlement(two, ACCEPTED)], now=NOW)

    first.refresh_from_db(), second.refresh_from_db()
    assert (first.status, second.status) == (Status.SUBMITTED, Status.SUBMITTED)
    assert {first.provider_message_id, second.provider_message_id} == {"3EB0AA", None}
    assert in_flight(first) == 0


def test_a_refusal_does_not_undo_a_receipt_that_overtook_it() -> None:
    message, each = claimed()
    move(Move(message_id=message.pk, to=Status.SENT, at=NOW))

    settle(each, error(Outcome.REJECTED))

    message.refresh_from_db()
    assert (message.status, message.lease_token, in_flight(message)) == (Status.SENT, None, 0)


def test_what_surely_was_not_sent_does_not_count_for_the_day() -> None:
    instance = make_instance(daily_cap=1)
    _message, each = claimed(instance=instance)

    settle(each, error(Outcome.RETRY))
    sent_after_retry = Lane.objects.get(instance=instance).sent_count
    _message, each = claimed(instance=instance)
    settle(each, error(Outcome.UNKNOWN, "no_answer"))

    assert (sent_after_retry, Lane.objects.get(instance=instance).sent_count) == (0, 1)


@pytest.mark.parametrize(("code", "opens"), [("provider_unreachable", True), ("throttled", False)])
def test_five_failures_of_the_endpoint_in_a_row_open_its_breaker(code: str, opens: bool) -> None:
    instance = make_instance(concurrency=5)
    for _ in range(5):
        _message, each = claimed(instance=instance)
        settle(each, error(Outcome.RETRY, code))

    later = make_message(instance=instance)

    assert (claim([later.instance_id], now=NOW) == []) is opens


def test_a_probe_that_was_refused_before_the_call_is_given_back() -> None:
    instance = make_instance(concurrency=2)
    down = breaking.Failure(instance.server_id, instance.pk, "provider_unreachable")
    breaking.note(answered=[], failures=[down] * breaking.OPENS_AFTER, now=NOW)
    half_open = NOW + breaking.SHORTEST_OPEN
    make_message(instance=instance)
    (probe,) = claim([instance.pk], now=half_open)

    settle(probe, gates.Refusal("deadline", "expired"))

    make_message(instance=instance)
    assert len(claim([instance.pk], now=half_open)) == 1
