"""When a person may be written to freely, asked at the moment of sending."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from instances.models import Instance, Lane
from instances.providers.base import InboundMessage, Outcome, ProviderError
from messaging import retention, windows
from messaging.claiming import Claim, claim
from messaging.models import Message, MessageEvent, Status, Window
from messaging.settling import Settlement, settle
from messaging.windows import Heard, State
from tests.factories import make_message, make_project
from tests.messaging.contents import TEMPLATE
from tests.meta import make_meta_instance

pytestmark = pytest.mark.django_db

ANA, KEY = "+5511999990000", "+551199990000"
HOUR = timedelta(hours=1)


@pytest.fixture
def instance(now: datetime) -> Instance:
    """A number that has been with Pilot for long."""
    return make_meta_instance(created_at=now - timedelta(days=30))


def heard(instance: Instance, at: datetime, sender: str = ANA, **fields: Any) -> Heard:
    values = {
        "provider_message_id": f"wamid.{at:%H%M}",
        "sender_id": sender.lstrip("+"),
        "sender_number": sender,
    }
    rest = {"sender_name": "", "kind": "text", "text": "oi", "at": at, "raw": {}, "opens_window": True}
    return Heard(instance, InboundMessage(**values | rest | fields), at)


def claimed(instance: Instance, now: datetime) -> list[Claim]:
    return claim([instance.pk], now=now)


def test_sends_a_text_within_a_day_of_the_last_message(instance: Instance, now: datetime) -> None:
    windows.note_received([heard(instance, now - 23 * HOUR)])
    make_message(instance=instance)

    (one,) = claimed(instance, now)

    assert one.open_until == now + HOUR - timedelta(seconds=90)
    assert one.message.last_received_id == "wamid.1300"


@pytest.mark.parametrize("age", [24 * HOUR - timedelta(seconds=89), 25 * HOUR, None])
def test_fails_a_text_when_the_window_has_closed(
    instance: Instance, now: datetime, age: timedelta | None
) -> None:
    if age is not None:
        windows.note_received([heard(instance, now - age)])
    message = make_message(instance=instance)

    assert claimed(instance, now) == []

    message.refresh_from_db()
    assert (message.status, message.failure_code) == ("failed", "window_closed")
    assert MessageEvent.objects.get(message=message, kind="failed").detail["gate"] == "window"


def test_sends_a_template_at_any_time(instance: Instance, now: datetime) -> None:
    make_message(instance=instance, content=TEMPLATE)

    (one,) = claimed(instance, now)

    assert one.open_until is None


def test_lets_meta_decide_while_a_number_is_new(now: datetime) -> None:
    instance = make_meta_instance(created_at=now - HOUR)
    make_message(instance=instance)

    assert len(claimed(instance, now)) == 1


def test_goes_on_with_those_who_may_be_written_to(instance: Instance, now: datetime) -> None:
    """A head that is refused does not cost its queue a turn."""
    windows.note_received([heard(instance, now - HOUR)])
    for _n in range(3):
        make_message(instance=instance, to="+5511988887777", deliver_until=now + HOUR / 2)
    open_one = make_message(instance=instance)

    assert [one.message.id for one in claimed(instance, now)] == [open_one.pk]


@pytest.mark.parametrize(
    ("to", "wrote"),
    [
        ("+5511999990000", "+551199990000"),
        ("+551199990000", "+5511999990000"),
        ("+5215512345678", "+525512345678"),
        ("+541123456789", "+5491123456789"),
    ],
)
def test_knows_a_person_by_either_form_of_the_number(
    instance: Instance, now: datetime, to: str, wrote: str
) -> None:
    windows.note_received([heard(instance, now - HOUR, wrote)])
    make_message(instance=instance, to=to)

    assert len(claimed(instance, now)) == 1


def test_knows_a_person_by_the_business_scoped_id(instance: Instance, now: datetime) -> None:
    windows.note_received([heard(instance, now - HOUR, "", sender_id="BR.1", user_id="BR.1")])
    make_message(instance=instance, to="BR.1")

    assert len(claimed(instance, now)) == 1


def test_does_not_open_by_what_is_no_message(instance: Instance, now: datetime) -> None:
    windows.note_received([heard(instance, now - HOUR, opens_window=False)])

    assert not Window.objects.exists()


def test_an_older_message_that_comes_late_closes_nothing(instance: Instance, now: datetime) -> None:
    windows.note_received([heard(instance, now - HOUR)])
    windows.note_received([heard(instance, now - 30 * HOUR)])

    assert Window.objects.get().received_at == now - HOUR


# --- what the provider refuses ----------------------------------------------------------------------------


def refuse(one: Claim, code: str, now: datetime) -> None:
    settle([Settlement(one, ProviderError(code, "131047: x", outcome=Outcome.REJECTED))], now=now)


def test_believes_a_refusal_that_comes_with_the_answer(instance: Instance, now: datetime) -> None:
    """The same handler takes in those that come by webhook (tests/webhooks/test_meta.py)."""
    windows.note_received([heard(instance, now - HOUR)])
    first, second = make_message(instance=instance), make_message(instance=instance)
    (one,) = claimed(instance, now)

    refuse(one, "window_closed", now)

    assert claimed(instance, now) == []
    for message in (first, second):
        message.refresh_from_db()
        assert (message.status, message.failure_code) == ("failed", "window_closed")
    assert (Window.objects.get().closed_at, Window.objects.get().refused_by) == (now, "window_closed")


def test_opens_again_when_the_person_writes_again(instance: Instance, now: datetime) -> None:
    windows.note_failures([windows.Failure(instance.pk, ANA, "window_closed", now - HOUR)])
    windows.note_received([heard(instance, now - HOUR / 2)])
    make_message(instance=instance)

    assert len(claimed(instance, now)) == 1


def test_131026_is_put_on_record_and_closes_no_window(instance: Instance, now: datetime) -> None:
    windows.note_received([heard(instance, now - HOUR)])
    windows.note_failures([windows.Failure(instance.pk, ANA, "undeliverable", now)])
    make_message(instance=instance)

    assert len(claimed(instance, now)) == 1
    assert Window.objects.get().refused_by == "undeliverable"


def test_a_repeated_or_older_refusal_changes_nothing(instance: Instance, now: datetime) -> None:
    for at in (now, now, now - HOUR):
        windows.note_failures([windows.Failure(instance.pk, ANA, "window_closed", at)])

    assert Window.objects.get().closed_at == now


def test_says_when_a_window_closes(now: datetime) -> None:
    since, margin = now - timedelta(days=9), timedelta(seconds=90)

    assert State().open_until(since=since) == since + 24 * HOUR - margin
    assert State(now).open_until(since=since) == now + 24 * HOUR - margin
    assert State(now, "", now).open_until(since=since) == now
    assert State(now, "", now - HOUR).open_until(since=since) == now + 24 * HOUR - margin


# --- rates ------------------------------------------------------------------------------------------------


def test_takes_as_many_at_once_as_the_number_s_rate_lets_through(now: datetime) -> None:
    instance = make_meta_instance(created_at=now, messages_per_second=80)
    project = make_project(instance.tenant)
    for n in range(10):
        make_message(project, instance, to=f"+55119999900{n:02}")

    first = claimed(instance, now)

    assert len(first) == 4
    assert [one.again_in is not None for one in first] == [False, False, False, True]
    assert claimed(instance, now) == []
    later = now + timedelta(seconds=first[-1].again_in or 0)
    assert len(claimed(instance, later)) == 1
    assert len(claimed(instance, later + timedelta(seconds=1))) == 4
    assert Lane.objects.get(instance=instance).in_flight == 9


def test_takes_no_more_than_may_be_in_flight(now: datetime) -> None:
    instance = make_meta_instance(created_at=now, messages_per_second=1000, concurrency=3)
    project = make_project(instance.tenant)
    for n in range(5):
        make_message(project, instance, to=f"+55119999900{n:02}")

    assert len(claimed(instance, now)) == 3
    assert claimed(instance, now + timedelta(seconds=1)) == []


def test_counts_every_message_of_a_batch_for_the_day(now: datetime) -> None:
    instance = make_meta_instance(created_at=now, messages_per_second=1000, daily_cap=2)
    project = make_project(instance.tenant)
    for n in range(5):
        make_message(project, instance, to=f"+55119999900{n:02}")

    assert len(claimed(instance, now)) == 2
    assert claimed(instance, now + timedelta(seconds=1)) == []
    assert Lane.objects.get(instance=instance).sent_count == 2


def test_sets_aside_what_is_too_much_for_one_person_and_sends_to_others(now: datetime) -> None:
    instance = make_meta_instance(created_at=now, messages_per_second=1000, concurrency=100)
    project = make_project(instance.tenant)
    Window.objects.create(instance=instance, address=KEY, full_at=now + timedelta(seconds=6 * 39))
    bubbles = [make_message(project, instance, deliver_until=now + HOUR / 2) for _n in range(3)]
    other = make_message(project, instance, to="+5511988887777")

    taken = claimed(instance, now)

    assert {one.message.id for one in taken} == {bubbles[0].pk, other.pk}
    aside = list(Message.objects.filter(held_by="pair_rate"))
    assert {message.next_attempt_at for message in aside} == {now + timedelta(seconds=6)}
    assert {message.status for message in aside} == {Status.QUEUED}
    held = MessageEvent.objects.filter(kind="held")
    assert held.count() == 2
    assert {event.detail["gate"] for event in held} == {"pair_rate"}
    assert Window.objects.get(address=KEY).full_at == now + timedelta(seconds=6 * 40)


def test_forgets_people_who_were_silent_for_long(instance: Instance, now: datetime, settings: Any) -> None:
    settings.RETENTION_DAYS = settings.RETENTION_DAYS | {"windows": 30}
    old, recent = now - timedelta(days=31), now - timedelta(days=29)
    rows = {
        "wrote": {"received_at": recent},
        "got": {"full_at": recent},
        "silent": {"received_at": old},
        "none": {},
    }
    for address, times in rows.items():
        Window.objects.create(instance=instance, address=address, **times)

    counts = list(retention.forget_windows(now))

    assert set(Window.objects.values_list("address", flat=True)) == {"wrote", "got"}
    assert counts == [{"windows": 2, "seen": 4}]


def test_shows_typing_only_as_an_answer(instance: Instance, now: datetime) -> None:
    Instance.objects.filter(pk=instance.pk).update(typing_ms=1000)
    windows.note_received([heard(instance, now - HOUR)])
    make_message(instance=instance)
    make_message(instance=instance, to="+5511988887777", content=TEMPLATE)

    claims = {one.message.to: one.typing_ms for _n in range(2) for one in claimed(instance, now)}

    assert claims == {ANA: 1000, "+5511988887777": 0}
