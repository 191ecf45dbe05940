"""/metrics: what Prometheus scrapes. Counts come from rows, so any web process gives the same answer.

HTTP requests are counted by django-prometheus in memory; PROMETHEUS_MULTIPROC_DIR puts the processes' counts together.
Each app adds its own collectors, in a module `metrics` that lists COLLECTORS: functions of the time that give metrics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import structlog
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from pilot import health, reporting, tallies
from pilot.maintenance import brought
from pilot.models import Alert
from pilot.operators import operators_only

log = structlog.get_logger(__name__)

Values = Mapping[tuple[str, ...], float]  # by label values
Tallied = Mapping[str, Values]
Source = Callable[[datetime], Iterable[Metric]]


@operators_only
def page(request: HttpRequest) -> HttpResponse:
    """Everything, in Prometheus's text format."""
    body = generate_latest(_requests()) + generate_latest(_rows())
    return HttpResponse(body, content_type=CONTENT_TYPE_LATEST)


def _requests() -> CollectorRegistry:
    if not settings.PROMETHEUS_MULTIPROC_DIR:
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=settings.PROMETHEUS_MULTIPROC_DIR)  # type: ignore[no-untyped-call]
    return registry


def _rows() -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Rows(timezone.now()))
    return registry


class _Rows(Collector):
    """All that is read from rows. A source that fails leaves out its own metrics, and is counted."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def collect(self) -> Iterator[Metric]:
        sources: list[Source] = brought("metrics", "COLLECTORS")
        failed = 0
        for done, source in enumerate(sources, start=1):
            try:
                yield from list(source(self._now))
            except DatabaseError:
                log.exception("metrics.source_failed", source=source.__qualname__)
                failed += 1
                if not connection.is_usable():  # the others would each wait for it
                    failed += len(sources) - done
                    break
        yield gauge("pilot_metrics_sources_failed", "Sources that could not be read.", {(): failed})


# --- building blocks for collectors -----------------------------------------------------------------------


def tallied() -> Tallied:
    """All tallies by name, each by its label values."""
    found: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for name, labels, value in tallies.read():
        found[name][labels] = value
    return found


def counter(name: str, said: str, labels: Sequence[str], values: Values) -> CounterMetricFamily:
    """A count that only grows."""
    family = CounterMetricFamily(name, said, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def gauge(name: str, said: str, values: Values, *labels: str) -> GaugeMetricFamily:
    """A level; `{(): value}` without labels."""
    family = GaugeMetricFamily(name, said, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def histogram(
    name: str, said: str, label: str, bounds: Sequence[float], all_tallies: Tallied, tally: str
) -> HistogramMetricFamily:
    """From a tally with the labels (label, index of the bucket) and its `_sum`, as messaging/tallying.py keeps it."""
    family = HistogramMetricFamily(name, said, labels=[label])
    for (value,), total in all_tallies.get(f"{tally}_sum", {}).items():
        counts = all_tallies.get(tally, {})
        reached, buckets = 0.0, []
        for place, bound in enumerate([*map(str, bounds), "+Inf"]):
            reached += counts.get((value, str(place)), 0)
            buckets.append((bound, reached))
        family.add_metric([value], buckets, total)
    return family


# --- the processes themselves -----------------------------------------------------------------------------


def processes(now: datetime) -> Iterator[Metric]:
    """By kind, not by name: names come and go with hosts."""
    report = health.report(now=now)
    newest: dict[tuple[str, ...], float] = {}
    for process in report["processes"]:
        key = (process["kind"],)
        newest[key] = min(process["progress_age_seconds"], newest.get(key, float("inf")))
    yield gauge(
        "pilot_progress_age_seconds", "Age of the last progress of the liveliest process.", newest, "kind"
    )
    yield gauge("pilot_parts_missing", "Parts that make no progress.", {(): len(report["missing"])})


def alerts(_now: datetime) -> Iterator[Metric]:
    counts = (
        Alert.objects.filter(recovered_at=None).values_list("kind").annotate(Count("id")).order_by("kind")
    )
    yield gauge(
        "pilot_alerts_open", "Alerts that are open.", {(kind,): count for kind, count in counts}, "kind"
    )


def maintenance(_now: datetime) -> Iterator[Metric]:
    counts = tallied()
    changes, runs = counts.get("maintenance_changes", {}), counts.get("maintenance_runs", {})
    said = "Rows that the reconciler and retention changed."
    yield counter("pilot_maintenance_changes", said, ["kind", "change"], changes)
    yield counter("pilot_maintenance_runs", "Their rounds, by how they ended.", ["kind", "outcome"], runs)


def streams(now: datetime) -> Iterator[Metric]:
    """The numbers of pilot/reporting.py."""
    behind: Values = {
        (table, reader.removeprefix("behind_")): float(count)
        for table, readers in reporting.events(now).items()
        for reader, count in readers.items()
        if reader != "numbered"
    }
    yield gauge("pilot_events_behind", "Events that a reader has not reached.", behind, "events", "reader")
    found = reporting.streams(now)
    length: Values = {(name,): float(stream["length"]) for name, stream in found.items()}
    groups = {
        (name, group): numbers
        for name, stream in found.items()
        for group, numbers in stream["groups"].items()
    }
    yield gauge("pilot_stream_length", "Entries of a stream.", length, "stream")
    for number, said in STREAM_NUMBERS.items():
        values: Values = {key: group[number] for key, group in groups.items() if group[number] is not None}
        yield gauge(f"pilot_stream_{number}", said, values, "stream", "group")


STREAM_NUMBERS = {
    "lag": "Entries that a group has not read.",
    "pending": "Entries that a group has read and not confirmed.",
    "oldest_pending_seconds": "Age of the oldest of them.",
}
COLLECTORS = [processes, alerts, maintenance, streams]
