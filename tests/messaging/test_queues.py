"""How queues are: what waits, what went out, when the next goes and when all is gone, in few statements."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from instances.models import Breaker, Instance, InstanceHour, Lane
from messaging import purging
from messaging import queues as messaging_queues
from messaging.models import Message, Purge
from messaging.queues import HOURS, Queue, present, queues, ranked
from pilot import sql
from tests.factories import NOW, make_instance, make_message, make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def instance() -> Instance:
    """Sends one message every 30 to 40 s."""
    return make_instance(
        pace_least_seconds=30, pace_most_seconds=40, urgent_gap_seconds=2, status_changed_at=NOW
    )


def _queue(instance: Instance) -> Queue:
    (queue,) = queues(Instance.objects.filter(pk=instance.pk), now=NOW)
    return queue


def _waits(instance: Instance, count: int = 1, **fields: Any) -> None:
    for _number in range(count):
        make_message(instance=instance, **fields)


def _lane(instance: Instance, **fields: Any) -> None:
    Lane.objects.filter(pk=instance.pk).update(**fields)


def test_counts_what_waits(instance: Instance) -> None:
    _waits(instance, 3)
    _waits(instance, created_at=NOW - timedelta(minutes=9))
    _waits(instance, 2, next_attempt_at=NOW + timedelta(minutes=5), created_at=NOW - timedelta(hours=9))
    _waits(instance, status="sending")
    _waits(instance, status="delivered")
    _lane(instance, in_flight=1)

    queue = _queue(instance)

    assert (queue.waiting.ready, queue.waiting.delayed, queue.in_flight, queue.length) == (4, 2, 1, 6)
    assert queue.oldest_seconds == 9 * 60


def test_counts_the_age_of_a_scheduled_message_from_its_time(instance: Instance) -> None:
    _waits(instance, created_at=NOW - timedelta(days=2), scheduled_at=NOW - timedelta(minutes=3))

    assert _queue(instance).oldest_seconds == 180


def test_is_empty_without_anything(instance: Instance) -> None:
    queue = _queue(instance)

    assert (queue.length, queue.oldest_seconds, queue.next_send_at, queue.empty_at) == (0, None, None, None)
    assert (list(queue.sent), queue.failed, queue.troubled) == ([0] * HOURS, 0, False)


def test_tells_of_an_instance_that_has_no_lane(instance: Instance) -> None:
    _waits(instance)
    Lane.objects.all().delete()

    assert (_queue(instance).length, _queue(instance).in_flight) == (1, 0)


def test_sums_the_last_hours(instance: Instance) -> None:
    for ago, sent, failed in ((0, 5, 1), (1, 40, 0), (23, 7, 2), (24, 100, 100)):
        hour = NOW - timedelta(hours=ago)
        InstanceHour.objects.create(instance=instance, hour=hour, sent=sent, failed=failed)

    (queue,) = queues(Instance.objects.filter(pk=instance.pk), now=NOW + timedelta(minutes=15))

    assert list(queue.sent) == [7, *[0] * 21, 40, 5]
    assert queue.failed == 3
    assert queue.sent_per_hour == 5 + 30  # a quarter of the hour before is over


@pytest.mark.parametrize(
    ("waits", "seconds"),
    [({"urgent": 0, "usual": 1}, 0), ({"urgent": 0, "usual": 3}, 70), ({"urgent": 2, "usual": 3}, 74)],
)
def test_foretells_when_it_is_empty(instance: Instance, waits: dict[str, int], seconds: float) -> None:
    _waits(instance, waits["urgent"], urgent=True)
    _waits(instance, waits["usual"])
    _lane(instance, next_send_at=NOW + timedelta(seconds=10), next_urgent_at=NOW + timedelta(seconds=10))

    queue = _queue(instance)

    assert queue.next_send_at == NOW + timedelta(seconds=10)
    assert queue.empty_at == NOW + timedelta(seconds=10 + seconds)


def test_is_not_empty_before_the_last_delayed_message_is_due(instance: Instance) -> None:
    _waits(instance, next_attempt_at=NOW + timedelta(minutes=5))
    _waits(instance, next_attempt_at=NOW + timedelta(hours=5))

    queue = _queue(instance)

    assert queue.next_send_at == NOW + timedelta(minutes=5)
    assert queue.empty_at == NOW + timedelta(hours=5)


def test_waits_for_the_breaker_and_the_day(instance: Instance) -> None:
    _waits(instance)
    until = NOW + timedelta(minutes=2)
    Breaker.objects.create(server=instance.server, failures=9, open_until=until)
    assert _queue(instance).next_send_at == _queue(instance).breaker_until == until

    _lane(instance, held_by="daily_cap", held_until=NOW + timedelta(hours=12))

    assert _queue(instance).next_send_at == NOW + timedelta(hours=12)


@pytest.mark.parametrize("fields", [{"status": "closed"}, {"paused": True}])
def test_foretells_nothing_of_an_instance_that_does_not_send(
    instance: Instance, fields: dict[str, Any]
) -> None:
    Instance.objects.filter(pk=instance.pk).update(**fields)
    _waits(instance)

    queue = _queue(instance)

    assert (queue.next_send_at, queue.empty_at, queue.troubled) == (None, None, True)


def test_is_in_trouble_from_the_thresholds_on(instance: Instance, settings: Any) -> None:
    settings.ALERT_QUEUE_LENGTH, settings.ALERT_OLDEST = 1, timedelta(minutes=1)
    _waits(instance, created_at=NOW - timedelta(seconds=60))
    assert not _queue(instance).troubled

    _waits(instance)
    assert (_queue(instance).too_long, _queue(instance).too_old) == (True, False)

    _waits(instance, created_at=NOW - timedelta(seconds=61))
    assert _queue(instance).too_old


def test_shows_a_purge_that_is_under_way(instance: Instance) -> None:
    Purge.objects.create(instance=instance, before=NOW, total=9, started_at=NOW, finished_at=NOW)
    assert _queue(instance).purge is None

    purge = Purge.objects.create(instance=instance, before=NOW, total=9, started_at=NOW)

    assert _queue(instance).purge == purge


def test_takes_five_statements_for_fifty_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = make_tenant()
    for number in range(50):
        instance = make_instance(tenant, name=f"wa-{number:02d}")
        _waits(instance)
        InstanceHour.objects.create(instance=instance, hour=NOW, sent=number)
    prepared: list[str] = []

    def fetch(statement: str, values: Any) -> Any:
        prepared.append(statement)
        return sql.fetch(statement, values)

    with CaptureQueriesContext(connection) as captured, monkeypatch.context() as patch:
        patch.setattr("messaging.queues.fetch", fetch)
        rows = queues(present(Instance.objects.filter(tenant=tenant)), now=NOW)

    assert len(rows) == 50
    assert len(captured) + len(prepared) == 5


def test_ranks_by_any_column() -> None:
    tenant = make_tenant()
    few, many = make_instance(tenant, name="few"), make_instance(tenant, name="many")
    idle = make_instance(tenant, name="idle", status="closed")
    _waits(few)
    _waits(many, 3)

    rows = queues(present(Instance.objects.filter(tenant=tenant)), now=NOW)

    def names(sort: str) -> list[str]:
        return [queue.instance.name for queue in ranked(rows, sort)]

    assert names("-queued") == ["many", "few", "idle"]
    assert names("name") == ["few", "idle", "many"]
    assert names("-state")[0] == idle.name
    with pytest.raises(KeyError):
        ranked(rows, "colour")


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (messaging_queues._DELAYED.format(only="AND instance_id = ANY(%s)"), lambda key: [[key]]),
        (purging._TAKE, lambda key: [*[key, NOW, 500] * 2, 500]),
    ],
)
def test_does_not_read_what_other_instances_delay(
    instance: Instance, statement: str, values: Callable[[int], list[Any]]
) -> None:
    """Measured with 3,000 scheduled messages of another instance: 78 and 160 pages without an index of its own."""
    template = make_message(next_attempt_at=NOW)
    fields = {field.attname: getattr(template, field.attname) for field in Message._meta.concrete_fields}
    Message.objects.bulk_create(Message(**fields | {"id": f"m{number:05}"}) for number in range(3000))
    _waits(instance, next_attempt_at=NOW)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE messaging_message")
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", values(instance.pk))
        plan = cursor.fetchone()[0][0]["Plan"]

    assert plan["Actual Rows"] == 1
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 50
