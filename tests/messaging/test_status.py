"""The state table and its only writer."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection
from django.utils import timezone

from messaging.models import FailureCode, Message, MessageEvent, Status
from messaging.status import TABLE, Move, move, settle, start
from tests.factories import NOW, make_instance, make_message

# DESIGN §3, as a square. `queued` → a proof is ours: an attempt taken for lost turned out to have gone through.
ALLOWED = {
    "queued": "sending cancelled failed submitted sent delivered read played",
    "sending": "queued unconfirmed submitted sent delivered read played failed",
    "unconfirmed": "queued submitted sent delivered read played failed",
    "submitted": "sent delivered read played failed",
    "sent": "delivered read played failed",
    "delivered": "read played",
    "read": "played",
    "played": "",
    "failed": "delivered read played",
    "cancelled": "",
}
SQUARE = [(source, target) for source in Status.values for target in Status.values]


def failing(to: str) -> dict[str, str]:
    return {"failure_code": FailureCode.REJECTED} if to == Status.FAILED else {}


def message_in(status: str, **fields: object) -> Message:
    code = FailureCode.REJECTED if status == Status.FAILED else ""
    return make_message(status=status, failure_code=code, **fields)


def kinds(message: Message) -> list[tuple[str, bool]]:
    return list(MessageEvent.objects.filter(message=message).order_by("id").values_list("kind", "applied"))


@pytest.mark.django_db
@pytest.mark.parametrize(("source", "target"), SQUARE)
def test_allows_exactly_the_edges_of_the_design(source: str, target: str) -> None:
    message = message_in(source)

    changed = move(Move(message_id=message.pk, to=target, at=NOW, **failing(target))).changed

    message.refresh_from_db()
    allowed = target in ALLOWED[source].split()
    assert changed == ({message.pk} if allowed else set())
    assert message.status == (target if allowed else source)
    assert kinds(message) == [(target, allowed)]


def test_knows_every_state() -> None:
    assert set(TABLE) == set(Status.values)


@pytest.mark.django_db
def test_fills_in_the_states_that_a_receipt_skips() -> None:
    message = message_in(Status.SENDING)

    move(Move(message_id=message.pk, to=Status.READ, at=NOW))

    message.refresh_from_db()
    assert (message.submitted_at, message.sent_at, message.delivered_at, message.read_at) == (NOW,) * 4
    assert message.played_at is None


@pytest.mark.django_db
def test_keeps_the_time_at_which_a_state_was_first_reached() -> None:
    message = message_in(Status.SENDING)
    later = NOW + timedelta(seconds=5)

    move(
        Move(message_id=message.pk, to=Status.SENT, at=NOW),
        Move(message_id=message.pk, to=Status.DELIVERED, at=later),
    )

    message.refresh_from_db()
    assert (message.sent_at, message.delivered_at) == (NOW, later)


@pytest.mark.django_db
def test_drops_an_exact_repetition() -> None:
    message = message_in(Status.SUBMITTED)
    receipt = Move(message_id=message.pk, to=Status.DELIVERED, at=NOW)

    first, second = move(receipt), move(receipt)

    assert (first.changed, second.changed) == ({message.pk}, set())
    assert kinds(message) == [("delivered", True)]


@pytest.mark.django_db
def test_keeps_late_news_without_going_backwards() -> None:
    message = message_in(Status.SUBMITTED)

    move(Move(message_id=message.pk, to=Status.READ, at=NOW))
    move(Move(message_id=message.pk, to=Status.DELIVERED, at=NOW))

    message.refresh_from_db()
    assert message.status == Status.READ
    assert kinds(message) == [("read", True), ("delivered", False)]


@pytest.mark.django_db
def test_late_proof_beats_a_guess() -> None:
    message = message_in(Status.UNCONFIRMED)

    move(Move(message_id=message.pk, to=Status.FAILED, at=NOW, failure_code=FailureCode.OUTCOME_UNKNOWN))
    move(Move(message_id=message.pk, to=Status.DELIVERED, at=NOW))

    message.refresh_from_db()
    assert (message.status, message.failure_code, message.failed_at) == (Status.DELIVERED, "", None)


@pytest.mark.django_db
def test_a_failure_needs_a_code() -> None:
    message = message_in(Status.QUEUED)

    with pytest.raises(IntegrityError):
        move(Move(message_id=message.pk, to=Status.FAILED, at=NOW))


@pytest.mark.django_db
def test_ends_the_lease_even_when_a_receipt_was_faster() -> None:
    token = uuid4()
    message = message_in(Status.SENDING, lease_token=token, lease_until=NOW)
    move(Move(message_id=message.pk, to=Status.DELIVERED, at=NOW))

    moved = move(
        Move(
            message_id=message.pk,
            to=Status.SUBMITTED,
            at=NOW,
            lease_token=token,
            provider_message_id="3EB0AA",
        )
    )

    message.refresh_from_db()
    assert moved.released == {token}
    assert (message.status, message.provider_message_id, message.lease_token) == (
        Status.DELIVERED,
        "3EB0AA",
        None,
    )


@pytest.mark.django_db
def test_a_worker_that_lost_its_lease_does_not_requeue_what_another_is_sending() -> None:
    current = uuid4()
    message = message_in(Status.SENDING, lease_token=current, lease_until=NOW, attempts=2)

    moved = move(Move(message_id=message.pk, to=Status.QUEUED, at=NOW, lease_token=uuid4()))

    message.refresh_from_db()
    assert moved.released == set()
    assert (message.status, message.lease_token, message.attempts) == (Status.SENDING, current, 2)


@pytest.mark.django_db
def test_a_worker_that_lost_its_lease_still_brings_proof() -> None:
    message = message_in(Status.UNCONFIRMED)

    move(
        Move(
            message_id=message.pk,
            to=Status.SUBMITTED,
            at=NOW,
            lease_token=uuid4(),
            provider_message_id="3EB0BB",
        )
    )

    message.refresh_from_db()
    assert (message.status, message.provider_message_id) == (Status.SUBMITTED, "3EB0BB")


@pytest.mark.django_db
def test_counts_an_attempt_unless_it_is_refunded() -> None:
    message = message_in(Status.QUEUED)
    token = uuid4()

    move(
        Move(message_id=message.pk, to=Status.SENDING, at=NOW, new_lease=token, lease_until=NOW),
        Move(message_id=message.pk, to=Status.QUEUED, at=NOW, lease_token=token, refund_attempt=True),
    )

    message.refresh_from_db()
    assert (message.attempts, message.attempted_at, message.lease_token) == (0, NOW, None)


@pytest.mark.django_db
def test_ignores_an_unknown_message() -> None:
    assert move(Move(message_id="nobody", to=Status.SENT, at=NOW)).changed == set()


@pytest.mark.django_db
def test_refuses_one_provider_id_for_two_messages() -> None:
    instance = make_instance()
    first, second = (make_message(instance=instance, status=Status.SENDING) for _ in range(2))
    move(Move(message_id=first.pk, to=Status.SUBMITTED, at=NOW, provider_message_id="3EB0"))

    with pytest.raises(IntegrityError):
        move(Move(message_id=second.pk, to=Status.SUBMITTED, at=NOW, provider_message_id="3EB0"))


@pytest.mark.django_db(transaction=True)
def test_only_one_of_two_racing_moves_wins() -> None:
    message = message_in(Status.QUEUED)
    barrier, wins = threading.Barrier(2), []

    def cancel() -> None:
        barrier.wait()
        wins.append(move(Move(message_id=message.pk, to=Status.CANCELLED, at=timezone.now())).changed)
        connection.close()

    threads = [threading.Thread(target=cancel) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(map(len, wins)) == [0, 1]
    assert [kind for kind, applied in kinds(message) if applied] == ["cancelled"]


# --- the statements for the two moves that every message makes --------------------------------------------


def facts(message: Message) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """All that a move may change of a message: its row and its timeline."""
    row = Message.objects.values().get(pk=message.pk)
    events = MessageEvent.objects.filter(message=message).order_by("id")
    own = {"id", "tenant_id", "project_id", "instance_id", "to"}
    return {name: value for name, value in row.items() if name not in own}, list(
        events.values("kind", "detail", "at", "applied")
    )


@pytest.mark.django_db
@pytest.mark.parametrize("source", Status.values)
def test_starting_at_once_does_what_a_move_does(source: str) -> None:
    at, token = NOW + timedelta(seconds=9), uuid4()
    fields = {"attempts": 2, "held_by": "pace", "failed_at": NOW if source == Status.FAILED else None}
    one, other = message_in(source, **fields), message_in(source, **fields)

    started = start({one.pk: token}, now=at, lease_until=at + timedelta(seconds=45))

    if source != Status.QUEUED:  # what cannot start leaves no trace, not even of having been tried
        assert (started, facts(one)) == (frozenset(), facts(other))
        return
    move(
        Move(
            message_id=other.pk,
            to=Status.SENDING,
            at=at,
            new_lease=token,
            lease_until=at + timedelta(seconds=45),
        )
    )
    assert (started, facts(one)) == ({one.pk}, facts(other))


@pytest.mark.django_db
@pytest.mark.parametrize("source", Status.values)
@pytest.mark.parametrize("held", [True, False], ids=["under its lease", "after its lease"])
@pytest.mark.parametrize("known", ["", "3EB0BEFORE"], ids=["no id yet", "an id already"])
@pytest.mark.parametrize("recipient", ["", "551199@s.whatsapp.net"], ids=["no recipient", "a recipient"])
def test_settling_at_once_does_what_a_move_does(source: str, held: bool, known: str, recipient: str) -> None:
    mine = uuid4()
    lease = {"lease_token": mine if held else uuid4(), "lease_until": NOW}
    fields = {"attempted_at": NOW, "provider_message_id": known or None, "recipient_id": "before"} | lease
    one, other, third = (message_in(source, **fields) for _ in range(3))

    def news(message: Message) -> Move:
        return Move(
            message_id=message.pk, to=Status.SUBMITTED, at=NOW + timedelta(seconds=1), attempted_at=NOW,
            lease_token=mine, provider_message_id="3EB0AA", recipient_id=recipient,
        )  # fmt: skip

    settled = settle([news(one)])
    moved = move(news(other))
    among_others = settle([news(third), Move(message_id="nobody", to=Status.FAILED, at=NOW)])

    assert facts(one) == facts(other) == facts(third)
    assert (settled.released, len(settled.changed)) == (moved.released, len(moved.changed))
    assert (among_others.released, len(among_others.changed)) == (moved.released, len(moved.changed))


@pytest.mark.django_db
def test_settling_twice_in_one_batch_is_settling_once() -> None:
    token = uuid4()
    message = message_in(Status.SENDING, lease_token=token, lease_until=NOW)
    news = Move(message_id=message.pk, to=Status.SUBMITTED, at=NOW, lease_token=token)

    settled = settle([news, news])

    assert (settled.changed, settled.released) == ({message.pk}, {token})
    assert kinds(message) == [("submitted", True)]
