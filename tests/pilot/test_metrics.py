"""What Prometheus reads, and that reading it is cheap and names nobody."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families as families

from instances.models import Breaker, Instance
from messaging.models import Message, MessageEvent
from messaging.status import Move, move
from messaging.tallying import tally
from pilot import health, maintenance, metrics, outbox, tallies
from pilot.alerts import raise_alert
from tests.factories import make_instance, make_message, make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def instance() -> Instance:
    return make_instance(make_tenant(slug="padaria"), name="vendas")


def _scraped(client: Client) -> dict[str, float]:
    """By name, and the values of labels in the order of the labels' names."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    return {
        sample.name + "".join(f",{value}" for _label, value in sorted(sample.labels.items())): sample.value
        for family in families(answer.content.decode())
        for sample in family.samples
    }


def _sent(instance: Instance, count: int, *statuses: str, **fields: Any) -> None:
    now = timezone.now()
    for _number in range(count):
        message = make_message(instance=instance, created_at=now - timedelta(seconds=7), **fields)
        MessageEvent.objects.create(message=message, tenant=message.tenant, kind="queued", at=now)
        for status in statuses:
            move(
                Move(
                    message_id=message.pk,
                    to=status,
                    at=now,
                    failure_code=_code(status),
                    detail=_detail(status),
                )
            )
    outbox.number(MessageEvent)
    while tally():
        pass


def _code(status: str) -> str:
    return "rejected" if status == "failed" else ""


def _detail(status: str) -> dict[str, str]:
    return {"code": "rejected"} if status == "failed" else {}


def test_counts_messages(client: Client, instance: Instance) -> None:
    _sent(instance, 3, "sending", "submitted", "delivered", category="otp")
    _sent(instance, 2, "failed")

    found = _scraped(client)

    assert found["pilot_messages_accepted_total,otp,live"] == 3
    assert found["pilot_messages_accepted_total,utility,live"] == 2
    assert found["pilot_messages_sent_total,otp,live"] == 3
    assert found["pilot_messages_delivered_total,otp,live"] == 3
    assert found["pilot_messages_failed_total,utility,rejected,live"] == 2


def test_measures_latencies_as_histograms(client: Client, instance: Instance) -> None:
    _sent(instance, 2, "sending", "submitted", category="otp")

    found = _scraped(client)

    assert found["pilot_accepted_to_sent_seconds_bucket,otp,5.0"] == 0
    assert found["pilot_accepted_to_sent_seconds_bucket,otp,10.0"] == 2
    assert found["pilot_accepted_to_sent_seconds_bucket,otp,+Inf"] == 2
    assert found["pilot_accepted_to_sent_seconds_count,otp"] == 2
    assert found["pilot_accepted_to_sent_seconds_sum,otp"] == pytest.approx(14, abs=0.1)


def test_tells_what_waits(client: Client, instance: Instance) -> None:
    now = timezone.now()
    make_message(instance=instance, created_at=now - timedelta(minutes=5))
    make_message(instance=instance, next_attempt_at=now)
    make_message(instance=instance, status="unconfirmed")
    Breaker.objects.create(server=instance.server, open_until=now + timedelta(minutes=1))

    found = _scraped(client)

    assert (found["pilot_queue_ready"], found["pilot_queue_delayed"], found["pilot_unconfirmed"]) == (1, 1, 1)
    assert 300 <= found["pilot_queue_oldest_seconds"] < 310
    assert (found["pilot_instances,open"], found["pilot_breakers_open"]) == (1, 1)


def test_names_no_tenant_unless_told_to(client: Client, instance: Instance, settings: Any) -> None:
    for number in range(3):
        busy = make_instance(instance.tenant, name=f"busy-{number}")
        for _message in range(number + 1):
            make_message(instance=busy)
    assert "padaria" not in client.get("/metrics").content.decode()

    settings.METRICS_INSTANCES = 2

    named = {name: value for name, value in _scraped(client).items() if "padaria" in name}
    assert named == {
        "pilot_instance_queue_ready,busy-2,padaria": 3,
        "pilot_instance_queue_ready,busy-1,padaria": 2,
    }


def test_tells_of_processes_readers_alerts_and_maintenance(client: Client) -> None:
    health.beat(name="w1@here", kind="worker")
    raise_alert("queue_too_long", "7", now=timezone.now())
    message = make_message()
    MessageEvent.objects.create(message=message, tenant=message.tenant, kind="queued", at=timezone.now())
    outbox.number(MessageEvent)
    tally()
    step = maintenance.Step("expire", lambda _now: iter([{"expired": 2}, {"expired": 1}]))
    maintenance.run("reconcile", [step], within=timedelta(minutes=1))

    found = _scraped(client)

    assert 0 <= found["pilot_progress_age_seconds,worker"] < 5
    assert found["pilot_parts_missing"] == 2
    assert found["pilot_alerts_open,queue_too_long"] == 1
    assert found["pilot_events_behind,messaging.messageevent,tallied"] == 0
    assert found["pilot_maintenance_changes_total,expired,reconcile"] == 3
    assert found["pilot_maintenance_runs_total,reconcile,done"] == 1


def test_counts_requests_by_view(client: Client) -> None:
    name = "django_http_responses_total_by_status_view_method_total,GET,401,api:messages"
    before = _scraped(client).get(name, 0)

    client.get("/api/messages")

    assert _scraped(client)[name] == before + 1


def test_reads_no_more_for_more_messages(client: Client, instance: Instance) -> None:
    """The events are never read at a scrape: only what waits, and a few hundred sums."""
    _sent(instance, 5, "sending", "submitted")
    client.get("/metrics")

    with CaptureQueriesContext(connection) as queries:
        client.get("/metrics")

    assert len(queries) <= 20, [query["sql"] for query in queries]
    assert not [query["sql"] for query in queries if MessageEvent._meta.db_table in query["sql"]]
    scans = [query["sql"] for query in queries if f'FROM "{Message._meta.db_table}"' in query["sql"]]
    assert all('"status" = ' in scan for scan in scans)


def test_leaves_out_what_cannot_be_read(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_now: Any) -> Iterator[Any]:
        raise DatabaseError("gone")
        yield

    monkeypatch.setattr(metrics, "COLLECTORS", [broken, *metrics.COLLECTORS])

    found = _scraped(client)

    assert found["pilot_metrics_sources_failed"] == 1
    assert "pilot_queue_ready" in found


def test_does_not_wait_again_for_a_database_that_is_away(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def broken(_now: Any) -> Iterator[Any]:
        asked.append("broken")
        raise DatabaseError("gone")
        yield

    monkeypatch.setattr(metrics, "brought", lambda *_names: [broken, broken, broken])
    monkeypatch.setattr(metrics.connection, "is_usable", lambda: False, raising=False)

    assert _scraped(client)["pilot_metrics_sources_failed"] == 3
    assert asked == ["broken"]


def test_adds_up(client: Client) -> None:
    tallies.add("messages_sent", {("live", "otp"): 2, ("test", "otp"): 0})
    tallies.add("messages_sent", {("live", "otp"): 3})
    tallies.add("messages_sent", {})
    tallies.add("long", {("x" * 50,): 1})

    assert list(tallies.read()) == [("long", ("x" * 40,), 1), ("messages_sent", ("live", "otp"), 5)]
