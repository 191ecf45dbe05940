"""Usage is counted in the tenant's months, exactly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from billing import metering
from billing.models import Usage
from tests.factories import NOW, make_project, make_tenant

pytestmark = pytest.mark.django_db


def test_adds_up_over_its_slots() -> None:
    project = make_project()

    for _ in range(20):
        metering.add(project=project, environment="live", count=2, now=NOW)

    assert metering.accepted(tenant=project.tenant, environment="live", now=NOW) == 40
    assert Usage.objects.filter(project=project).count() <= metering.SLOTS


def test_the_month_ends_at_midnight_of_the_tenant() -> None:
    project = make_project(make_tenant(time_zone="America/Sao_Paulo"))
    midnight_utc = datetime(2026, 12, 1, 0, 30, tzinfo=UTC)

    metering.add(project=project, environment="live", count=1, now=midnight_utc)
    metering.add(project=project, environment="live", count=1, now=midnight_utc + timedelta(hours=3))

    months = Usage.objects.filter(project=project).values_list("month", "accepted").order_by("month")
    assert [(month.isoformat(), accepted) for month, accepted in months] == [
        ("2026-11-01", 1),
        ("2026-12-01", 1),
    ]


def test_counts_by_utc_when_the_time_zone_is_unknown() -> None:
    tenant = make_tenant(time_zone="Mars/Base")

    assert metering.month_of(tenant, datetime(2026, 12, 1, 0, 30, tzinfo=UTC)).isoformat() == "2026-12-01"


def test_test_and_live_are_counted_apart() -> None:
    project = make_project()

    metering.add(project=project, environment="test", count=5, now=NOW)

    assert metering.accepted(tenant=project.tenant, environment="live", now=NOW) == 0
