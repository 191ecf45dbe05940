"""What tenants' programs may hear of, beside messages: rows in the transaction of the change."""

from __future__ import annotations

import pytest

from accounts import events
from accounts.models import Event
from pilot import outbox
from tests.factories import NOW, make_tenant

pytestmark = pytest.mark.django_db


def test_numbers_events_in_their_order() -> None:
    tenant = make_tenant()
    for kind in ("campaign.started", "campaign.completed"):
        events.record(tenant_id=tenant.pk, kind=kind, data={"campaign": "natal"}, at=NOW)

    counts = [outbox.number(Event), outbox.number(Event)]

    numbered = list(Event.objects.order_by("position").values_list("position", "kind"))
    assert counts == [2, 0]
    assert numbered == [(1, "campaign.started"), (2, "campaign.completed")]
