"""Long rounds of small steps: what the full reconciler and retention have in common.

Each app brings its own steps, in a module of an agreed name. A step works in batches, each a short transaction of its
own, and says after each one what it did; there the round renews its lease, or stops. The lease only saves work: what
a step does is right when two rounds run at once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any

import structlog
from django.apps import apps
from django.utils import timezone
from django.utils.module_loading import module_has_submodule

from pilot import tallies
from pilot.leases import Tenure, lease
from pilot.models import MaintenanceRun, Outcome

log = structlog.get_logger(__name__)

Batches = Iterator[Mapping[str, int]]
Clock = Callable[[], datetime]

# Longer than a batch may take; a process that dies with the lease holds the next round up for so long.
LEASE = timedelta(minutes=2)
SAVE_SECONDS = 5.0
# Not a change: rows that a step only looked at.
SEEN = "seen"

_stopping = threading.Event()


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a round. `batches` is given the time and yields, after each batch, what was changed, by name."""

    name: str
    batches: Callable[[datetime], Batches]


def brought(module: str, attribute: str) -> list[Any]:
    """What the installed apps list under `attribute` in a module of theirs, in the order of the apps.

    So the lower apps need not know the upper ones: an app joins in by having the module.
    """
    having = [config for config in apps.get_app_configs() if module_has_submodule(config.module, module)]
    return [
        item for config in having for item in getattr(import_module(f"{config.name}.{module}"), attribute)
    ]


def run(
    kind: str, steps: Iterable[Step], *, within: timedelta, clock: Clock = timezone.now
) -> MaintenanceRun | None:
    """One round of `steps`, for at most `within`. None when another process is at it.

    A step that fails is noted and does not keep the others from theirs.
    """
    with lease(f"maintenance.{kind}", lasts=LEASE) as tenure:
        return _Round(kind, tenure, within, clock).go(steps) if tenure else None


def pause(seconds: float) -> None:
    """Leaves the database to others for a while; ends early when the process is to stop."""
    _stopping.wait(seconds)


def stop() -> None:
    """Ends the rounds of this process after their present batch."""
    _stopping.set()


class _Round:
    """A round under way, and its row."""

    def __init__(self, kind: str, tenure: Tenure, within: timedelta, clock: Clock) -> None:
        self.tenure, self.clock = tenure, clock
        self.until = time.monotonic() + within.total_seconds()
        self.counts: Counter[str] = Counter()
        self.seen = 0
        self.saved_at = time.monotonic()
        self.row = MaintenanceRun.objects.create(kind=kind, started_at=clock())

    def go(self, steps: Iterable[Step]) -> MaintenanceRun:
        outcome = self._go(steps)
        self.row.finished_at = self.clock()
        self._save(outcome)
        tallies.add("maintenance_runs", {(self.row.kind, outcome): 1})
        tallies.add(
            "maintenance_changes", {(self.row.kind, name): count for name, count in self.counts.items()}
        )
        log.info("maintenance.done", **self._report())
        return self.row

    def _go(self, steps: Iterable[Step]) -> Outcome:
        for step in steps:
            if reason := self._perform(step):
                return reason
        return Outcome.FAILED if self.row.errors else Outcome.DONE

    def _perform(self, step: Step) -> Outcome | None:
        try:
            for batch in step.batches(self.clock()):
                self._note(batch)
                if reason := self._reason_to_stop():
                    return reason
        except Exception as error:
            log.exception("maintenance.step_failed", kind=self.row.kind, step=step.name)
            self.row.errors[step.name] = f"{type(error).__name__}: {error}"[:500]
        return self._reason_to_stop()

    def _reason_to_stop(self) -> Outcome | None:
        if _stopping.is_set():
            return Outcome.STOPPED
        if not self.tenure.keep():
            return Outcome.LEASE_LOST
        return Outcome.OUT_OF_TIME if time.monotonic() >= self.until else None

    def _note(self, batch: Mapping[str, int]) -> None:
        self.seen += batch.get(SEEN, 0)
        self.counts.update({name: count for name, count in batch.items() if name != SEEN and count})
        if time.monotonic() - self.saved_at >= SAVE_SECONDS:
            self._save(Outcome.RUNNING)

    def _save(self, outcome: Outcome) -> None:
        self.saved_at = time.monotonic()
        self.row.outcome = outcome
        self.row.seen, self.row.changed = self.seen, self.counts.total()
        self.row.counts = dict(self.counts)
        self.row.save()

    def _report(self) -> dict[str, Any]:
        seconds = (self.row.finished_at - self.row.started_at).total_seconds() if self.row.finished_at else 0
        return {
            "kind": self.row.kind,
            "outcome": self.row.outcome,
            "seconds": round(seconds, 1),
            "seen": self.seen,
            "changed": self.row.changed,
            "counts": self.row.counts,
            "failed": sorted(self.row.errors),
        }
