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


def test_runs_when_its_interval_has_passed(settings: Any) -> None:
    settings.MESSAGE_RECONCILER_INTERVAL = timedelta(minutes=10)

    at = [NOW, NOW + timedelta(minutes=9), NOW + timedelta(minutes=10)]
    runs = [reconciling.run_if_due(clock=lambda moment=moment: moment) for moment in at]  # type: ignore[misc]

    assert [run is not None for run in runs] == [True, False, True]
    assert reconciling.last_run() == runs[-1]


def test_runs_at_once_when_it_is_told_to() -> None:
    MaintenanceRun.objects.create(kind="reconcile", started_at=NOW)

    assert reconciling.run(clock=lambda: NOW) is not None


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


def test_beat_asks_often_enough_for_any_interval() -> None:
    assert app.conf.beat_schedule["reconcile-all"]["schedule"] <= 60
