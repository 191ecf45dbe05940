"""Retention of raw calls: soon when they are applied, later when they could not be, never before."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from pilot import maintenance
from tests.factories import NOW, make_instance
from webhooks import retention
from webhooks.models import InboundCall

pytestmark = pytest.mark.django_db


def test_deletes_calls_that_are_done_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "pause", lambda _seconds: None)
    instance = make_instance()

    def call(name: str, days_ago: int, applied_at: datetime | None = NOW, error: str = "") -> None:
        made = InboundCall.objects.create(
            instance=instance, event=name, body=b"{}", applied_at=applied_at, error=error
        )
        InboundCall.objects.filter(pk=made.pk).update(received_at=NOW - timedelta(days=days_ago))

    call("gone", 4)
    call("waiting", 400, applied_at=None)
    call("in.error", 4, error="KeyError")
    call("long.in.error", 15, error="KeyError")
    call("fresh", 2)

    for step in retention.STEPS:
        list(step.batches(NOW))

    left = InboundCall.objects.order_by("pk").values_list("event", flat=True)
    assert list(left) == ["waiting", "in.error", "fresh"]
