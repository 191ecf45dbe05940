"""The full reconciler: when it runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pilot import alerts, reconciling
from pilot.celery import app
from pilot.maintenance import Step
from pilot.models import Alert, MaintenanceRun
from tests.factories import NOW

pytestmark = pytest.mark.django_db


def test_knows_the_last_round_that_ended() -> None:
    assert reconciling.last_run() is None

    ended = reconciling.run(clock=lambda: NOW)
    MaintenanceRun.objects.create(kind="reconcile", started_at=NOW + timedelta(hours=1))
    MaintenanceRun.objects.create(kind="retention", started_at=NOW, finished_at=NOW + timedelta(hours=1))

    assert reconciling.last_run() == ended


def test_more_than_a_few_changes_raise_an_alert_until_there_are_few_again(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.RECONCILER_ALERT_ABOVE = 2
    found = iter([2, 3, 1])
    monkeypatch.setattr(
        reconciling, "sweeps", lambda: [Step("expired", lambda _now: iter([{"expired": next(found)}]))]
    )

    open_after = []
    for _round in range(3):
        reconciling.run(clock=lambda: NOW)
        open_after.append(alerts.open_subjects("reconciler_found_many"))

    assert open_after == [set(), {"reconcile"}, set()]
    assert Alert.objects.get().detail == {"name": "reconcile", "count": 3}


def test_the_lower_apps_come_first() -> None:
    names = [sweep.name for sweep in reconciling.sweeps()]

    assert names.index("expired") < names.index("calls")
    assert len(names) == len(set(names))


def test_beat_asks_for_it_as_often_as_it_is_set(settings: Any) -> None:
    entry = app.conf.beat_schedule["reconcile-all"]

    assert entry["schedule"] == settings.MESSAGE_RECONCILER_INTERVAL.total_seconds() == 3600
