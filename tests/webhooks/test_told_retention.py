"""How long customers' events and the log of their deliveries are kept."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pilot import retention
from tests.factories import NOW
from tests.webhooks.tellings import make_endpoint, tell
from webhooks.models import WebhookDelivery, WebhookEvent

pytestmark = pytest.mark.django_db


def prune(days: int) -> None:
    (step,) = [step for step in retention.steps() if step.name == "webhook_events"]
    for _batch in step.batches(NOW + timedelta(days=days)):
        pass


def test_events_go_with_their_deliveries_once_they_are_old_and_told() -> None:
    first, second = tell(make_endpoint(), 2)
    WebhookDelivery.objects.filter(pk=first.pk).update(status="delivered")

    prune(29)
    assert WebhookDelivery.objects.count() == 2
    prune(31)

    assert [row.pk for row in WebhookDelivery.objects.all()] == [second.pk]
    assert [row.pk for row in WebhookEvent.objects.all()] == [second.event_id]
