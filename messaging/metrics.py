"""What /metrics tells of messages: counts from messaging/tallying.py, levels from the rows that wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from django.conf import settings
from django.db.models import Count
from prometheus_client.metrics_core import Metric

from instances.models import Breaker, Instance, Lane
from messaging.models import Message, Status
from messaging.queues import Waiting, present, waiting
from messaging.tallying import BOUNDS
from pilot.metrics import Values, counter, gauge, histogram, tallied

KIND = ["environment", "category"]
COUNTS = {
    "accepted": "Messages accepted.",
    "sent": "Messages that a provider took, or that a receipt proves.",
    "delivered": "Messages delivered.",
    "cancelled": "Messages cancelled.",
    "unconfirmed": "Sends whose outcome was not known at first.",
    "retried": "Attempts that were put back into the queue.",
}


def counts(_now: datetime) -> Iterator[Metric]:
    """What became of messages, and how long it took."""
    all_tallies = tallied()
    for step, said in COUNTS.items():
        yield counter(f"pilot_messages_{step}", said, KIND, all_tallies.get(f"messages_{step}", {}))
    failed = all_tallies.get("messages_failed", {})
    yield counter("pilot_messages_failed", "Messages failed, by code.", [*KIND, "code"], failed)
    for name, (said, label, tally) in HISTOGRAMS.items():
        yield histogram(name, said, label, BOUNDS, all_tallies, tally)


HISTOGRAMS = {
    "pilot_accepted_to_sent_seconds": (
        "From accepted, or the time it was scheduled for, to sent.",
        "category",
        "seconds_to_sent",
    ),
    "pilot_sent_to_delivered_seconds": ("From sent to delivered.", "category", "seconds_to_delivered"),
    "pilot_forecast_error_seconds": (
        "How far off the forecast at acceptance was, by direction.",
        "direction",
        "forecast_error",
    ),
}


def queues(now: datetime) -> Iterator[Metric]:
    """What waits now. Instances are named only as METRICS_INSTANCES says: their number has no bound."""
    waits = waiting()
    ready, delayed = sum(q.ready for q in waits.values()), sum(q.delayed for q in waits.values())
    oldest = min((q.oldest_at for q in waits.values() if q.oldest_at), default=now)
    age = max((now - oldest).total_seconds(), 0)
    unconfirmed = Message.objects.filter(status=Status.UNCONFIRMED).count()
    in_flight = sum(Lane.objects.filter(in_flight__gt=0).values_list("in_flight", flat=True))
    yield gauge("pilot_queue_ready", "Messages that wait and may go.", {(): ready})
    yield gauge("pilot_queue_delayed", "Messages that are scheduled or tried again later.", {(): delayed})
    yield gauge("pilot_queue_oldest_seconds", "Age of the oldest message that may go.", {(): age})
    yield gauge("pilot_in_flight", "Messages being handed to a provider.", {(): in_flight})
    yield gauge("pilot_unconfirmed", "Messages whose outcome is being found out.", {(): unconfirmed})
    if settings.METRICS_INSTANCES:
        yield _longest(waits, settings.METRICS_INSTANCES)


def _longest(waits: Mapping[int, Waiting], most: int) -> Metric:
    chosen = sorted(waits, key=lambda key: -waits[key].ready)[:most]
    rows = Instance.objects.filter(pk__in=chosen).values_list("pk", "tenant__slug", "name")
    values: Values = {(tenant, name): float(waits[key].ready) for key, tenant, name in rows}
    return gauge("pilot_instance_queue_ready", "The longest queues.", values, "tenant", "instance")


def instances(now: datetime) -> Iterator[Metric]:
    """How many there are in each state, and how many servers do not answer."""
    rows = present(Instance.objects.all()).order_by("status").values_list("status").annotate(Count("id"))
    states: Values = {(status,): float(count) for status, count in rows}
    yield gauge("pilot_instances", "Instances by status.", states, "status")
    paused = present(Instance.objects.filter(paused=True)).count()
    yield gauge("pilot_instances_paused", "Instances that somebody paused.", {(): paused})
    silent = Breaker.objects.filter(open_until__gt=now).count()
    yield gauge("pilot_breakers_open", "Servers left alone because they do not answer.", {(): silent})


COLLECTORS = [counts, queues, instances]
