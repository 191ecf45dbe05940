"""One delivery for each endpoint and event, whatever is lost, repeated or flushed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connections

from accounts import events
from accounts.models import Event
from messaging.models import MessageEvent
from messaging.status import Move, move
from pilot import outbox
from pilot.models import StreamPlace
from pilot.redis import client
from tests.factories import NOW, make_message, make_project
from tests.webhooks.tellings import fan_out, happen, make_endpoint, message_of, tell
from webhooks import endpoints, fanning, payloads
from webhooks.models import WebhookDelivery, WebhookEndpoint, WebhookEvent

pytestmark = pytest.mark.django_db


def told(endpoint: WebhookEndpoint) -> list[str]:
    rows = endpoint.deliveries.order_by("id").select_related("event")
    return [row.event.type for row in rows]


def test_tells_every_endpoint_of_every_event_once() -> None:
    first = make_endpoint()
    second = make_endpoint(first.tenant)
    message = message_of(first)
    happen(message, "queued", "sending", "submitted", "delivered")

    fan_out()
    fan_out()

    expected = ["message.queued", "message.submitted", "message.delivered"]
    assert (told(first), told(second)) == (expected, expected)
    assert WebhookEvent.objects.count() == 3


def test_tells_what_the_status_table_announces() -> None:
    endpoint = make_endpoint()
    message = message_of(endpoint, status="sending")
    move(Move(message_id=message.pk, to="submitted", at=NOW, provider_message_id="3EB0"))
    move(Move(message_id=message.pk, to="sent", at=NOW - timedelta(seconds=1)))
    move(Move(message_id=message.pk, to="submitted", at=NOW))  # late: changes nothing, and is not told

    fan_out()

    assert told(endpoint) == ["message.submitted", "message.sent"]


def test_a_place_that_was_lost_makes_nothing_twice() -> None:
    """As after a backup that was restored, or a stream that is read again."""
    endpoint = make_endpoint()
    happen(message_of(endpoint), "queued", "submitted")
    tell(endpoint, 2)
    before = list(WebhookDelivery.objects.order_by("id").values())
    names = set(WebhookEvent.objects.values_list("name", flat=True))

    StreamPlace.objects.filter(name__endswith=".webhooks").update(position=0)
    fan_out()

    assert list(WebhookDelivery.objects.order_by("id").values()) == before
    assert set(WebhookEvent.objects.values_list("name", flat=True)) == names


def test_a_flushed_redis_changes_nothing() -> None:
    endpoint = make_endpoint()
    message = message_of(endpoint)
    happen(message, "queued")
    client().flushdb()
    fan_out()
    happen(message, "submitted")
    client().flushdb()
    fan_out()

    assert told(endpoint) == ["message.queued", "message.submitted"]


def test_two_readers_at_once_make_nothing_twice(transactional_db: None) -> None:
    endpoint = make_endpoint()
    happen(message_of(endpoint), *(["queued"] * 50))

    def read(_number: int) -> None:
        try:
            while fanning.fan_out():
                pass
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as readers:
        list(readers.map(read, range(4)))

    assert endpoint.deliveries.count() == 50
    assert len(set(endpoint.deliveries.values_list("event", flat=True))) == 50


def test_passes_on_more_than_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanning, "BATCH", 3)
    endpoint = make_endpoint()

    happen(message_of(endpoint), *(["held"] * 8))
    fan_out()

    assert len(told(endpoint)) == 8


def test_only_what_an_endpoint_asked_for() -> None:
    endpoint = make_endpoint(types=["message.read", "optin.changed"])
    happen(message_of(endpoint), "queued", "delivered", "read")
    tell(endpoint)

    assert sorted(told(endpoint)) == ["message.read", "optin.changed"]


def test_test_and_live_are_apart() -> None:
    live = make_endpoint()
    test = make_endpoint(live.tenant, environment="test")
    happen(message_of(live), "sent")
    happen(message_of(live, environment="test"), "read")
    fan_out()

    assert (told(live), told(test)) == (["message.sent"], ["message.read"])


def test_what_concerns_both_is_told_to_both() -> None:
    live = make_endpoint()
    test = make_endpoint(live.tenant, environment="test")
    tell(live)

    assert (told(live), told(test)) == (["optin.changed"], ["optin.changed"])


def test_a_projects_endpoint_hears_of_its_project_and_of_the_tenant() -> None:
    project = make_project()
    endpoint = make_endpoint(project=project)
    happen(message_of(endpoint, project), "sent")
    happen(message_of(endpoint), "read")
    tell(endpoint)

    assert sorted(told(endpoint)) == ["message.sent", "optin.changed"]


def test_no_tenant_hears_of_another() -> None:
    endpoint, other = make_endpoint(), make_endpoint()
    happen(message_of(endpoint), "sent")
    tell(endpoint)
    fan_out()

    assert told(other) == []
    assert set(WebhookEvent.objects.values_list("tenant", flat=True)) == {endpoint.tenant_id}


def test_an_endpoint_is_not_told_of_what_was_before_it() -> None:
    older = make_endpoint()
    happen(message_of(older), "queued")
    tell(older)
    values = {"tenant": older.tenant, "environment": "live", "url": "https://example.com/", "now": NOW}
    endpoint, _secret = endpoints.create(**values)
    happen(message_of(older), "read", at=NOW - timedelta(days=9))  # news may be late
    StreamPlace.objects.filter(name__endswith=".webhooks").update(position=0)
    tell(older)

    assert sorted(told(endpoint)) == ["message.read", "optin.changed"]


def test_keeps_for_a_replay_what_an_endpoint_that_is_off_is_not_told() -> None:
    endpoint = make_endpoint(disabled_at=NOW, disabled_by="person")
    happen(message_of(endpoint), "read")
    fan_out()

    assert told(endpoint) == []
    assert WebhookEvent.objects.get().type == "message.read"


def test_keeps_nothing_for_tenants_without_an_endpoint() -> None:
    happen(make_message(), "read")
    fan_out()

    assert not WebhookEvent.objects.exists()
    assert StreamPlace.objects.get(pk="messaging.messageevent.webhooks").position == 1


def test_an_event_that_is_in_no_catalogue_blocks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = make_endpoint()
    events.record(tenant_id=endpoint.tenant_id, kind="made.up", data={}, at=NOW)
    tell(endpoint)

    assert told(endpoint) == ["optin.changed"]
    assert "webhooks.event_unknown" in caplog.text


def test_the_id_is_that_of_the_timeline() -> None:
    """So that a receiver can find it again with GET /api/messages/<id>/events."""
    endpoint = make_endpoint()
    (row,) = happen(message_of(endpoint), "read")
    fan_out()

    event = WebhookEvent.objects.get()
    assert event.name == f"evt_m{row.pk}"
    assert json.loads(payloads.body(event, version="1"))["id"] == event.name


def test_numbers_what_no_relay_numbers() -> None:
    endpoint = make_endpoint()
    tell(endpoint, 2)

    assert list(Event.objects.order_by("id").values_list("position", flat=True)) == [1, 2]
    assert outbox.number(MessageEvent) == 0
