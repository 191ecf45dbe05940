"""Reading usage over the API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import time_machine
from django.test import Client

from accounts.models import Project
from billing import metering
from tests.factories import make_key, make_project, make_tenant

pytestmark = pytest.mark.django_db
NEW_YEAR_IN_UTC = datetime(2027, 1, 1, 1, 0, tzinfo=UTC)  # still December in São Paulo


@pytest.fixture
def project() -> Project:
    return make_project(make_tenant(time_zone="America/Sao_Paulo"))


def _get(project: Project, *, environment: str = "live", **parameters: str) -> Any:
    _key, raw = make_key(project, environment=environment)
    return Client().get("/api/usage", parameters, headers={"apikey": raw})


def test_counts_the_months_of_the_tenant(project: Project) -> None:
    metering.add(project=project, environment="live", count=3, now=NEW_YEAR_IN_UTC)

    with time_machine.travel(NEW_YEAR_IN_UTC):
        assert _get(project).json() == {"month": "2026-12", "environment": "live", "accepted": 3}
    assert _get(project, month="2026-12").json()["accepted"] == 3
    assert _get(project, month="2027-01").json()["accepted"] == 0


def test_shows_a_key_its_own_project_and_environment_only(project: Project) -> None:
    sibling = make_project(project.tenant)
    metering.add(project=project, environment="live", count=3, now=NEW_YEAR_IN_UTC)

    assert _get(project, environment="test", month="2026-12").json()["accepted"] == 0
    assert _get(sibling, month="2026-12").json()["accepted"] == 0


@pytest.mark.parametrize("month", ["", "2026", "2026-13", "2026-1", "0000-01", "2026-11-01", "\u0662026-11"])
def test_refuses_what_is_no_month(project: Project, month: str) -> None:
    answer = _get(project, month=month)
    assert (answer.status_code, set(answer.json()["error"]["fields"])) == (400, {"month"})
