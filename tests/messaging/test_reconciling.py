"""What time alone decides."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from instances.models import Lane
from messaging import reconciling, status
from messaging.models import Message, MessageEvent, Status, UnknownPolicy
from tests.factories import NOW, make_instance, make_message, make_project
from tests.messaging.sends import Sends
from tests.sandbox.emulator import eventually

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


@pytest.mark.parametrize(
    ("since_attempt", "to_deadline", "until_next"),
    [
        pytest.param(1, 3600, 5, id="at least five seconds"),
        pytest.param(40, 3600, 40, id="as long as since the attempt"),
        pytest.param(3000, 3600, 600, id="at most ten minutes"),
        pytest.param(3000, 20, 50, id="not past the decision"),
        pytest.param(3000, -60, 5, id="soon again when it is overdue"),
    ],
)
def test_look_ups_grow_apart_but_the_last_is_on_time(
    since_attempt: int, to_deadline: int, until_next: int
) -> None:
    message = make_message(
        status=Status.UNCONFIRMED,
        next_attempt_at=NOW,
        attempted_at=NOW - timedelta(seconds=since_attempt),
        deliver_until=NOW + timedelta(seconds=to_deadline),
    )

    reconciling._take_unconfirmed(NOW)

    message.refresh_from_db()
    assert message.next_attempt_at == NOW + timedelta(seconds=until_next)


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


# --- look-ups ---------------------------------------------------------------------------------------------


def lost(sends: Sends, text: str, **fields: Any) -> Message:
    """A message that went out, but whose answer was lost."""
    sends.emulator.arm("answer_lost", times=1)
    message = sends.message(sends.instance(), content={"text": text}, **fields)
    sends.run(message.instance)
    return message


def test_finds_what_went_out_and_what_the_receipts_said(sends: Sends) -> None:
    message = lost(sends, "Seu código é 4711")
    soon = timezone.now() + timedelta(seconds=6)
    eventually(lambda: reconciling.look_up_unconfirmed(now=soon) and _known(message))

    message.refresh_from_db()
    assert message.provider_message_id == sends.emulator.ledger()[0]["key_id"]


def test_asks_even_when_it_became_unconfirmed_too_late_to_be_looked_for(sends: Sends) -> None:
    """A worker that dies close to a deadline: its lease ends after the time for look-ups is over."""
    message = lost(sends, "Seu código é 4712")
    late = message.deliver_until + reconciling.GRACE + timedelta(seconds=1)

    reconciling.look_up_unconfirmed(now=late)

    message.refresh_from_db()
    assert (message.status, message.failure_code) != (Status.FAILED, "outcome_unknown")
    assert message.provider_message_id == sends.emulator.ledger()[0]["key_id"]


def _known(message: Message) -> bool:
    Message.objects.filter(pk=message.pk, status="unconfirmed").update(next_attempt_at=timezone.now())
    return not Message.objects.filter(pk=message.pk, status="unconfirmed").exists()


def test_a_message_that_whatsapp_refused_is_found_as_failed(sends: Sends) -> None:
    sends.emulator.arm("error_receipt", times=1)
    message = lost(sends, "recusada")
    eventually(lambda: _error_recorded(sends, message))

    reconciling.look_up_unconfirmed(now=timezone.now() + timedelta(seconds=6))

    message.refresh_from_db()
    assert (message.status, message.failure_code) == (Status.FAILED, "undeliverable")


def _error_recorded(sends: Sends, message: Message) -> bool:
    key_id = sends.emulator.ledger()[0]["key_id"]
    answer = sends.emulator.api.post(
        f"/chat/findStatusMessage/{message.instance.provider_name}", json={"where": {"id": key_id}}
    )
    return any(row["status"] == "ERROR" for row in answer.json())


def test_one_record_proves_one_of_two_twins_and_keeps_the_batch_whole(sends: Sends) -> None:
    instance = sends.instance(concurrency=2)
    project = make_project(instance.tenant)
    twins = [sends.message(instance, project=project, content={"text": "igual"}) for _ in range(2)]
    other = lost(sends, "outra")
    sends.emulator.arm("answer_lost", times=1)
    sends.emulator.arm("reset_before", times=1)
    sends.run(instance)

    reconciling.look_up_unconfirmed(now=timezone.now() + timedelta(seconds=6))

    other.refresh_from_db()
    assert other.provider_message_id
    ids = Message.objects.filter(pk__in=[twin.pk for twin in twins]).values_list(
        "provider_message_id", flat=True
    )
    assert sorted(ids, key=bool)[0] is None


@pytest.mark.parametrize(("resend", "becomes"), [(False, "unconfirmed"), (True, "queued")])
def test_a_one_time_code_is_sent_again_only_where_the_tenant_wants_that(
    sends: Sends, resend: bool, becomes: str
) -> None:
    sends.emulator.arm("reset_before", times=1)
    message = sends.message(sends.instance(), category="otp")
    UnknownPolicy.objects.create(tenant=message.tenant, resend=resend)
    sends.run(message.instance)

    reconciling.look_up_unconfirmed(now=timezone.now() + reconciling.RESEND_AFTER + timedelta(seconds=1))

    message.refresh_from_db()
    assert message.status == becomes


def test_only_codes_may_be_sent_again() -> None:
    with pytest.raises(IntegrityError):
        UnknownPolicy.objects.create(tenant=make_instance().tenant, category="utility", resend=True)


def test_a_receipt_that_comes_during_the_look_up_is_not_undone() -> None:
    message = make_message(status=Status.UNCONFIRMED, attempted_at=NOW, deliver_until=NOW)
    given_up = reconciling._given_up(message.pk, NOW)
    status.move(status.Move(message_id=message.pk, to=Status.SUBMITTED, at=NOW))

    status.move(given_up)

    message.refresh_from_db()
    assert message.status == Status.SUBMITTED
