"""Calling a message back."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from messaging.cancelling import NotCancellable, cancel
from messaging.claiming import claim
from messaging.models import Message, MessageEvent, Status
from tests import factories

pytestmark = pytest.mark.django_db


def test_is_never_sent_after_it_was_cancelled(now: datetime) -> None:
    message = factories.make_message(status=Status.QUEUED)
    assert cancel(message, now=now, by="key p").status == Status.CANCELLED
    assert claim([message.instance_id], now=now) == []

    event = MessageEvent.objects.get(message=message, kind=Status.CANCELLED)
    assert (event.applied, event.detail) == (True, {"by": "key p"})


def test_cancels_what_waits_for_its_next_attempt(now: datetime) -> None:
    message = factories.make_message(
        status=Status.QUEUED, next_attempt_at=now + timedelta(hours=1), attempts=1
    )
    assert cancel(message, now=now, by="key p").cancelled_at == now


def test_changes_nothing_the_second_time(now: datetime) -> None:
    message = factories.make_message(status=Status.QUEUED)
    cancel(message, now=now, by="key p")
    again = cancel(message, now=now + timedelta(hours=1), by="key q")
    assert (again.status, again.cancelled_at) == (Status.CANCELLED, now)
    assert MessageEvent.objects.filter(message=message, kind=Status.CANCELLED).count() == 1


@pytest.mark.parametrize(
    "status", [Status.SENDING, Status.UNCONFIRMED, Status.SUBMITTED, Status.SENT, Status.READ, Status.FAILED]
)
def test_says_what_became_of_what_does_not_wait_any_more(now: datetime, status: Status) -> None:
    failure = {"failure_code": "expired"} if status == Status.FAILED else {}
    message = factories.make_message(status=status, **failure)
    with pytest.raises(NotCancellable) as refused:
        cancel(message, now=now, by="key p")
    assert refused.value.fields == {"status": [status]}
    assert refused.value.message
    assert Message.objects.get(pk=message.pk).status == status


def test_loses_against_a_claim_that_was_faster(now: datetime) -> None:
    message = factories.make_message(status=Status.QUEUED)
    assert claim([message.instance_id], now=now)
    with pytest.raises(NotCancellable):
        cancel(message, now=now, by="key p")
    assert Message.objects.get(pk=message.pk).status == Status.SENDING
