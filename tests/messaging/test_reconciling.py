"""What time alone decides."""

from __future__ import annotations

import threading
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection, transaction

from instances.models import Lane
from messaging import reconciling
from messaging.models import Message, MessageEvent, Status
from tests.factories import NOW, make_instance, make_message, make_project

pytestmark = pytest.mark.django_db


def test_expires_what_is_past_its_deadline_and_nothing_else() -> None:
    late = make_message(deliver_until=NOW)
    later = make_message(deliver_until=NOW + timedelta(seconds=1))
    retrying = make_message(deliver_until=NOW, next_attempt_at=NOW + timedelta(hours=1))

    assert reconciling.expire(now=NOW) == 2

    for message in (late, later, retrying):
        message.refresh_from_db()
    assert [late.status, later.status, retrying.status] == ["failed", "queued", "failed"]
    assert late.failure_code == "expired"


def test_expires_more_than_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciling, "BATCH", 3)
    instance = make_instance()
    project = make_project(instance.tenant)
    for _ in range(7):
        make_message(project, instance, deliver_until=NOW)

    assert reconciling.expire(now=NOW) == 7
    assert not Message.objects.filter(status=Status.QUEUED).exists()


def test_a_lease_that_ran_out_leaves_the_message_unconfirmed_and_frees_the_lane() -> None:
    message = make_message(status=Status.SENDING, lease_token=uuid4(), lease_until=NOW, attempts=1)
    Lane.objects.filter(instance=message.instance_id).update(in_flight=1)

    assert reconciling.release_expired_leases(now=NOW) == 1

    message.refresh_from_db()
    assert (message.status, message.lease_token) == (Status.UNCONFIRMED, None)
    assert Lane.objects.get(instance=message.instance_id).in_flight == 0
    assert MessageEvent.objects.get(message=message).detail["code"] == "lease_expired"


def test_a_lease_that_ran_out_after_a_receipt_only_frees_the_lane() -> None:
    message = make_message(status=Status.DELIVERED, lease_token=uuid4(), lease_until=NOW)
    Lane.objects.filter(instance=message.instance_id).update(in_flight=1)

    reconciling.release_expired_leases(now=NOW)

    message.refresh_from_db()
    assert (message.status, message.lease_token) == (Status.DELIVERED, None)
    assert Lane.objects.get(instance=message.instance_id).in_flight == 0


def test_a_live_lease_is_left_alone() -> None:
    make_message(status=Status.SENDING, lease_token=uuid4(), lease_until=NOW + timedelta(seconds=1))

    assert reconciling.release_expired_leases(now=NOW) == 0


def test_an_unconfirmed_message_is_never_sent_again_but_given_up_in_the_end() -> None:
    message = make_message(
        status=Status.UNCONFIRMED,
        next_attempt_at=NOW,
        attempted_at=NOW - timedelta(hours=2),
        deliver_until=NOW,
    )

    counts = reconciling.look_up_unconfirmed(now=NOW + reconciling.GRACE)

    message.refresh_from_db()
    assert counts["decided"] == 1
    assert (message.status, message.failure_code) == (Status.FAILED, "outcome_unknown")


@pytest.mark.django_db(transaction=True)
def test_two_sweeps_at_once_share_the_work() -> None:
    messages = [make_message(deliver_until=NOW) for _ in range(4)]
    expired: list[int] = []

    def sweep() -> None:
        expired.append(reconciling.expire(now=NOW))
        connection.close()

    with transaction.atomic():  # somebody else holds one of them
        Message.objects.select_for_update().get(pk=messages[0].pk)
        threads = [threading.Thread(target=sweep) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sum(expired) == 3
    assert MessageEvent.objects.filter(kind="failed").count() == 3
