"""Repairing by hand: a test, one again, a time again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.factories import NOW
from tests.webhooks.tellings import fan_out, happen, make_endpoint, message_of, tell
from webhooks import deliveries, endpoints
from webhooks.claiming import claim
from webhooks.models import WebhookDelivery, WebhookEndpoint, WebhookReplay

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


def replay(endpoint: WebhookEndpoint, **order: Any) -> WebhookReplay:
    """Orders a day and works it off."""
    fields = {"since": NOW - DAY / 2, "until": NOW + DAY / 2, "everything": False, "now": NOW + DAY}
    made = deliveries.order_replay(endpoint, **fields | order)
    while deliveries.replay(now=NOW + DAY):
        pass
    made.refresh_from_db()
    return made


def settle_as(status: str, *rows: WebhookDelivery) -> None:
    WebhookDelivery.objects.filter(pk__in=[row.pk for row in rows]).update(
        status=status, untried=False, attempts=8, finished_at=NOW
    )


def waiting(endpoint: WebhookEndpoint) -> list[int]:
    return list(endpoint.deliveries.filter(status="pending").order_by("id").values_list("pk", flat=True))


def test_sends_an_example_to_one_endpoint_only() -> None:
    endpoint = make_endpoint(types=["message.read"])
    other = make_endpoint(endpoint.tenant)

    delivery = deliveries.send_test(endpoint, type="campaign.completed", now=NOW)

    assert (delivery.event.sample, delivery.event.type) == (True, "campaign.completed")
    assert not other.deliveries.exists()
    assert [each.delivery.pk for each in claim(room=10, now=NOW)] == [delivery.pk]
    assert replay(endpoint).replayed == 0, "a test is never replayed"


@pytest.mark.parametrize("status", ["failed", "delivered", "pending"])
def test_sends_one_again_at_once_with_all_its_attempts(status: str) -> None:
    endpoint = make_endpoint()
    (row,) = tell(endpoint)
    WebhookDelivery.objects.update(
        status=status, untried=False, attempts=5, next_attempt_at=NOW + DAY, log=[{"number": 1}]
    )

    deliveries.resend(WebhookDelivery.objects.get(), now=NOW)

    (again,) = claim(room=10, now=NOW)
    assert (again.delivery.pk, again.delivery.attempts) == (row.pk, 1)
    assert again.delivery.event.name == row.event.name
    assert WebhookDelivery.objects.get().log == [{"number": 1}]


def test_does_not_send_again_what_is_on_its_way() -> None:
    (row,) = tell(make_endpoint())
    claim(room=1, now=NOW)

    with pytest.raises(deliveries.BeingDelivered):
        deliveries.resend(row, now=NOW)

    assert claim(room=1, now=NOW) == []


def test_nothing_is_sent_where_an_endpoint_is_off() -> None:
    endpoint = make_endpoint()
    (row,) = tell(endpoint)
    endpoints.disable(endpoint, now=NOW)
    off = WebhookEndpoint.objects.get()
    row.refresh_from_db()

    for attempt in (
        lambda: deliveries.send_test(off, type="message.read", now=NOW),
        lambda: deliveries.resend(WebhookDelivery.objects.get(), now=NOW),
        lambda: deliveries.order_replay(off, since=NOW - DAY, until=NOW, everything=True, now=NOW),
    ):
        with pytest.raises(deliveries.EndpointOff):
            attempt()


def test_replays_what_failed_and_what_was_never_told() -> None:
    endpoint = make_endpoint()
    failed, arrived, still = tell(endpoint, 3)
    settle_as("failed", failed)
    settle_as("delivered", arrived)
    WebhookEndpoint.objects.update(disabled_at=NOW, disabled_by="person")
    happen(message_of(endpoint), "read")
    fan_out()
    WebhookEndpoint.objects.update(disabled_at=None, disabled_by="")
    endpoint.refresh_from_db()

    done = replay(endpoint)

    missed = endpoint.deliveries.get(event__type="message.read")
    assert waiting(endpoint) == [failed.pk, still.pk, missed.pk]
    assert (done.replayed, done.finished_at) == (2, NOW + DAY)


def test_replays_everything_when_asked_to() -> None:
    endpoint = make_endpoint()
    failed, arrived = tell(endpoint, 2)
    settle_as("failed", failed)
    settle_as("delivered", arrived)

    assert replay(endpoint, everything=True).replayed == 2

    assert waiting(endpoint) == [failed.pk, arrived.pk]


def test_replays_only_the_time_that_was_asked_for() -> None:
    endpoint = make_endpoint()
    message = message_of(endpoint)
    for minutes in (0, 1, 2, 3):
        happen(message, "held", at=NOW + timedelta(minutes=minutes))
    fan_out()
    settle_as("failed", *endpoint.deliveries.all())

    replay(endpoint, since=NOW + timedelta(minutes=1), until=NOW + timedelta(minutes=3))

    times = (
        endpoint.deliveries.filter(status="pending").order_by("event__at").values_list("event__at", flat=True)
    )
    assert list(times) == [NOW + timedelta(minutes=1), NOW + timedelta(minutes=2)]


def test_replays_only_what_the_endpoint_asks_for() -> None:
    endpoint = make_endpoint(types=["message.read"], environment="test")
    make_endpoint(endpoint.tenant)  # for whom the other events are kept
    happen(message_of(endpoint, environment="test"), "read", "delivered")
    happen(message_of(endpoint), "read")
    tell(endpoint)

    replay(endpoint, everything=True)

    assert [row.event.type for row in endpoint.deliveries.select_related("event")] == ["message.read"]


def test_replays_to_a_new_endpoint_what_was_before_it() -> None:
    old = make_endpoint()
    tell(old, 3)
    new = make_endpoint(old.tenant, created_at=NOW + timedelta(minutes=1))
    assert not new.deliveries.exists()

    assert replay(new).replayed == 3


def test_works_a_long_replay_off_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "REPLAYED_AT_ONCE", 3)
    endpoint = make_endpoint()
    settle_as("failed", *tell(endpoint, 8))  # all at the same moment

    assert replay(endpoint).replayed == 8
    assert len(waiting(endpoint)) == 8


def test_a_replay_does_not_delay_what_happens_now() -> None:
    endpoint = make_endpoint()
    settle_as("failed", *tell(endpoint, 50))
    replay(endpoint)
    newest = tell(endpoint)[-1]

    claims = claim(room=1000, now=NOW + DAY)

    assert newest.pk in [each.delivery.pk for each in claims]
    assert len(claims) == 6


@pytest.mark.parametrize(
    ("since", "until"),
    [
        (NOW + 2 * DAY, NOW + 3 * DAY),
        (NOW, NOW),
        (NOW, NOW - DAY),
        (NOW - 91 * DAY, NOW),
    ],
)
def test_refuses_a_time_that_makes_no_sense(since: Any, until: Any) -> None:
    endpoint = make_endpoint()

    with pytest.raises(deliveries.InvalidReplay) as refused:
        deliveries.order_replay(endpoint, since=since, until=until, everything=False, now=NOW)

    assert "since" in refused.value.fields


def test_refuses_a_heap_of_replays() -> None:
    endpoint = make_endpoint()
    for _number in range(deliveries.MOST_REPLAYS):
        deliveries.order_replay(endpoint, since=NOW - DAY, until=NOW, everything=True, now=NOW)

    with pytest.raises(deliveries.TooManyReplays):
        deliveries.order_replay(endpoint, since=NOW - DAY, until=NOW, everything=True, now=NOW)


def test_switching_on_again_can_catch_up() -> None:
    endpoint = make_endpoint(disabled_at=NOW, disabled_by="failing", failing_since=NOW - DAY, silent_calls=9)
    happen(message_of(endpoint), "read", at=NOW + timedelta(minutes=5))
    fan_out()

    assert endpoints.enable(endpoint, now=NOW + timedelta(hours=1), catch_up=True)
    assert not endpoints.enable(endpoint, now=NOW + timedelta(hours=1), catch_up=True)
    while deliveries.replay(now=NOW + DAY):
        pass

    endpoint.refresh_from_db()
    assert (endpoint.enabled, endpoint.failing_since, endpoint.silent_calls) == (True, None, 0)
    assert endpoint.deliveries.get().event.type == "message.read"
