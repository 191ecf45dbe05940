"""Rounds: one at a time, in batches, stopped in time, and written down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from uuid import uuid4

import pytest

from pilot import maintenance
from pilot.leases import lease
from pilot.maintenance import SEEN, Batches, Step
from pilot.models import Lease, MaintenanceRun, Outcome
from tests.factories import NOW

pytestmark = pytest.mark.django_db

WITHIN = timedelta(minutes=1)


def go(*steps: Step, within: timedelta = WITHIN) -> MaintenanceRun | None:
    return maintenance.run("reconcile", steps, within=within, clock=lambda: NOW)


def step(name: str, *batches: dict[str, int], before: Callable[[], object] = lambda: None) -> Step:
    """A step with these batches, which does something before it yields each."""

    def generate(_now: object) -> Batches:
        for batch in batches:
            before()
            yield batch

    return Step(name, generate)


def done(run: MaintenanceRun | None) -> MaintenanceRun:
    assert run is not None
    run.refresh_from_db()
    return run


def test_adds_up_what_the_batches_did() -> None:
    run = done(go(step("a", {"x": 2, SEEN: 10}, {"x": 1, "y": 0, SEEN: 5}), step("b", {"z": 4})))

    assert (run.outcome, run.seen, run.changed) == (Outcome.DONE, 15, 7)
    assert run.counts == {"x": 3, "z": 4}
    assert (run.started_at, run.finished_at, run.errors) == (NOW, NOW, {})


def test_a_step_that_fails_keeps_no_other_from_its_turn() -> None:
    def fail() -> None:
        raise ZeroDivisionError("by zero")

    run = done(go(step("bad", {"x": 1}, before=fail), step("good", {"y": 1})))

    assert (run.outcome, run.counts) == (Outcome.FAILED, {"y": 1})
    assert run.errors == {"bad": "ZeroDivisionError: by zero"}


def test_runs_once_at_a_time() -> None:
    with lease("maintenance.reconcile", lasts=WITHIN):
        assert go(step("a", {"x": 1})) is None

    assert not MaintenanceRun.objects.exists()


def test_stops_after_the_batch_in_which_its_lease_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "LEASE", timedelta(0))  # so that it is asked about after every batch

    run = done(go(step("a", {"x": 1}, {"x": 1}, before=_give_lease_to_another), step("b", {"y": 1})))

    assert (run.outcome, run.counts) == (Outcome.LEASE_LOST, {"x": 1})


def _give_lease_to_another() -> None:
    Lease.objects.update(token=uuid4())


def test_renews_its_lease_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "LEASE", timedelta(0))
    ends: list[datetime] = []

    go(step("a", {}, {}, {}, before=lambda: ends.append(Lease.objects.get().until)))

    assert ends == sorted(set(ends))
    assert len(ends) == 3


def test_stops_when_its_time_is_up() -> None:
    run = done(go(step("a", {"x": 1}, {"x": 1}), within=timedelta(0)))

    assert (run.outcome, run.counts) == (Outcome.OUT_OF_TIME, {"x": 1})


@pytest.fixture
def _not_stopped() -> Iterator[None]:
    yield
    maintenance._stopping.clear()


@pytest.mark.usefixtures("_not_stopped")
def test_stops_with_its_process() -> None:
    run = done(go(step("a", {"x": 1}, {"x": 1}, before=maintenance.stop)))

    assert (run.outcome, run.counts) == (Outcome.STOPPED, {"x": 1})


def test_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "SAVE_SECONDS", 0)
    shown: list[tuple[str, int]] = []

    go(step("a", {"x": 1}, {"x": 1}, before=lambda: shown.extend(_shown())))

    assert shown == [("running", 0), ("running", 1)]


def _shown() -> list[tuple[str, int]]:
    return list(MaintenanceRun.objects.values_list("outcome", "changed"))
