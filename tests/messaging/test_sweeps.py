"""The full reconciler over messages: what it finds, that it stays small, and that two of them do nothing twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from psycopg.pq import TransactionStatus

from accounts.models import Project
from instances.models import Instance, Lane
from instances.providers.base import Finding, Found
from messaging import announcing, lanes, soundness, sweeps
from messaging.models import Message, MessageEvent, Status
from messaging.settling import vacate
from pilot import locks
from pilot.leading import Leadership
from pilot.maintenance import SEEN
from pilot.redis import client
from tests.factories import NOW, make_instance, make_message, make_project, make_template

pytestmark = pytest.mark.django_db

WEEK = timedelta(days=7)
STILL_UNKNOWN = Found(Finding.STILL_UNKNOWN)


def own_text(**fields: Any) -> Message:
    """A message that lacks nothing."""
    return make_message(**{"body_override": True} | fields)


def checked(now: Any = NOW) -> Counter[str]:
    total: Counter[str] = Counter()
    for counts in soundness.check_queue(now):
        total.update(counts)
    return total


def outcome(message: Message) -> tuple[str, str, str]:
    message.refresh_from_db()
    return message.status, message.failure_code, message.failure_detail


# --- the queue --------------------------------------------------------------------------------------------


def test_leaves_alone_what_lacks_nothing() -> None:
    version = make_template(make_project()).current_version
    messages = [
        own_text(),
        own_text(to="", recipient_id="123@lid"),
        make_message(template_version=version),
        make_message(category="session"),
        own_text(next_attempt_at=NOW + timedelta(minutes=5), attempts=2),
    ]

    assert checked() == Counter({SEEN: 5})
    assert {outcome(message)[0] for message in messages} == {"queued"}


def test_an_own_text_needs_no_template() -> None:
    """ME-07: the first system dropped what had a body of its own."""
    message = own_text(template_version=None, content={"text": "Olá", "buttons": []})

    checked()

    assert outcome(message)[0] == "queued"


@pytest.mark.parametrize(
    ("missing", "fields"),
    [
        ("to", {"to": "", "body_override": True}),
        ("template_version", {"body_override": False}),
        ("content", {"content": {}, "body_override": True}),
        ("content", {"content": [], "body_override": True}),
        ("content", {"content": {"text": "Olá", "buttons": [{"kind": "url"}]}, "body_override": True}),
    ],
)
def test_fails_what_lacks_something_and_names_it(missing: str, fields: dict[str, Any]) -> None:
    message = make_message(**fields)

    assert checked()["invalid_content"] == 1

    assert outcome(message) == ("failed", "invalid_content", missing)
    assert MessageEvent.objects.get(message=message).detail == {"code": "invalid_content", "field": missing}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"status": "removed"}, "instance_removed"),
        ({"provider_name": ""}, "invalid_content"),
        ({"provider": "gone"}, "invalid_content"),
    ],
)
def test_fails_what_has_no_instance_to_go_out_from(fields: dict[str, Any], code: str) -> None:
    message = own_text(instance=make_instance(**fields), next_attempt_at=NOW + timedelta(hours=1))

    checked()

    assert outcome(message) == ("failed", code, "instance")


def test_nothing_waits_longer_than_a_week() -> None:
    forever = NOW + timedelta(days=20)
    old = own_text(created_at=NOW - WEEK, deliver_until=forever)
    younger = own_text(created_at=NOW - WEEK + timedelta(seconds=1), deliver_until=forever)

    assert checked()["queue_timeout"] == 1

    assert outcome(old) == ("failed", "queue_timeout", "")
    assert outcome(younger)[0] == "queued"


def test_a_week_counts_from_the_time_for_which_it_was_scheduled() -> None:
    message = own_text(created_at=NOW - timedelta(days=30), scheduled_at=NOW - timedelta(minutes=5))

    checked()

    assert outcome(message)[0] == "queued"


def test_does_not_touch_what_somebody_is_sending_or_has_sent() -> None:
    """ME-04: what was submitted is never put back."""
    codes = {Status.FAILED: "rejected"}
    messages = [
        make_message(status=status, content={}, failure_code=codes.get(status, ""))
        for status in Status
        if status != Status.QUEUED
    ]

    assert checked() == Counter()
    assert [outcome(message)[0] for message in messages] == [s for s in Status if s != Status.QUEUED]
    assert not MessageEvent.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_leaves_a_message_to_whoever_holds_it() -> None:
    message = make_message(content={})
    counts: list[Counter[str]] = []

    with transaction.atomic():
        Message.objects.select_for_update().get(pk=message.pk)
        in_threads(lambda: counts.append(checked()))

    assert counts == [Counter({SEEN: 1})]
    assert outcome(message)[0] == "queued"


def test_pages_end_between_equal_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundness, "PAGE", 2)
    instance, project = world()
    for _ in range(5):
        own_text(instance=instance, project=project)

    assert [counts[SEEN] for counts in soundness.check_queue(NOW)] == [2, 2, 1]


# --- sending and unconfirmed ------------------------------------------------------------------------------


def test_doubts_what_is_in_sending_without_a_lease() -> None:
    stranded = make_message(status="sending", attempts=1)
    sending = make_message(status="sending", lease_token=uuid4(), lease_until=NOW + timedelta(seconds=30))

    assert sum(sweeps.doubt_stranded(NOW)) == 1

    stranded.refresh_from_db()
    assert (stranded.status, stranded.next_attempt_at) == ("unconfirmed", NOW)
    assert outcome(sending)[0] == "sending"


def test_gives_a_time_to_what_nobody_would_look_up() -> None:
    untimed = make_message(status="unconfirmed")
    timed = make_message(status="unconfirmed", next_attempt_at=NOW + timedelta(hours=1))

    assert sum(sweeps.time_look_ups(NOW)) == 1

    untimed.refresh_from_db()
    timed.refresh_from_db()
    assert (untimed.next_attempt_at, timed.next_attempt_at) == (NOW, NOW + timedelta(hours=1))


# --- lanes ------------------------------------------------------------------------------------------------


def test_gives_a_lane_to_an_instance_that_has_none() -> None:
    lost, kept, removed = make_instance(), make_instance(), make_instance(status="removed")
    Lane.objects.filter(instance__in=[lost, removed]).delete()
    Lane.objects.filter(instance=kept).update(sent_count=7)

    assert sum(lanes.make_missing(NOW)) == 1

    assert Lane.objects.get(instance=lost).next_send_at == NOW
    assert Lane.objects.get(instance=kept).sent_count == 7
    assert not Lane.objects.filter(instance=removed).exists()


def test_frees_a_lane_that_rests_longer_than_any_pace() -> None:
    jumped, paced = make_instance(), make_instance()
    Lane.objects.filter(instance=jumped).update(next_send_at=NOW + timedelta(days=400))
    Lane.objects.filter(instance=paced).update(next_send_at=NOW + timedelta(hours=1))

    assert sum(lanes.free_resting(NOW)) == 1

    assert Lane.objects.get(instance=jumped).next_send_at == NOW
    assert Lane.objects.get(instance=paced).next_send_at == NOW + timedelta(hours=1)


def test_counts_again_what_is_in_flight() -> None:
    stuck, busy, full = make_instance(), make_instance(), make_instance()
    make_message(instance=busy, status="sending", lease_token=uuid4(), lease_until=NOW)
    make_message(instance=full, status="delivered", lease_token=uuid4(), lease_until=NOW)
    Lane.objects.filter(instance__in=[stuck, full]).update(in_flight=1)

    assert sum(lanes.recount(NOW)) == 2

    assert [Lane.objects.get(instance=each).in_flight for each in (stuck, busy, full)] == [0, 1, 1]


@pytest.mark.django_db(transaction=True)
def test_counts_no_lane_that_is_just_being_settled() -> None:
    """The count would be of before the settlement, and be written after it."""
    message = make_message(status="sending", lease_token=uuid4(), lease_until=NOW)
    Lane.objects.filter(instance=message.instance_id).update(in_flight=2)
    corrected: list[int] = []

    with transaction.atomic():
        Message.objects.filter(pk=message.pk).update(status="sent", lease_token=None, lease_until=None)
        vacate([message.instance_id])
        in_threads(lambda: corrected.extend(lanes.recount(NOW)))
    corrected.extend(lanes.recount(NOW))

    assert corrected == [0, 1]
    assert Lane.objects.get(instance=message.instance_id).in_flight == 0


# --- what should be on its way ----------------------------------------------------------------------------


def test_promotes_what_was_due_a_while_ago() -> None:
    overdue = own_text(next_attempt_at=NOW - timedelta(minutes=2))
    just_due = own_text(next_attempt_at=NOW)

    assert sum(sweeps.promote(NOW)) == 1

    overdue.refresh_from_db()
    just_due.refresh_from_db()
    assert (overdue.next_attempt_at, just_due.next_attempt_at) == (None, NOW)


def test_wakes_instances_with_work(monkeypatch: pytest.MonkeyPatch) -> None:
    message = own_text()
    woken: list[int] = []
    monkeypatch.setattr(sweeps.pulse, "wake_in_shards", lambda ids: woken.extend(ids) or len(ids))

    assert list(sweeps.wake(NOW)) == [{SEEN: 1}]
    assert woken == [message.instance_id]


# --- announcements ----------------------------------------------------------------------------------------


@pytest.fixture
def _stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty stream, and a lead that no other process of this server wants."""
    monkeypatch.setattr(locks, "RELAY", 0x7E570001)
    client().delete(announcing.STREAM)
    yield
    client().delete(announcing.STREAM)


@pytest.mark.usefixtures("_stream")
def test_announces_when_nobody_else_does() -> None:
    message = make_message()
    MessageEvent.objects.create(message=message, tenant=message.tenant, kind="queued", at=NOW)

    assert sum(sweeps.announce(NOW)) == 1
    assert client().xlen(announcing.STREAM) == 1


@pytest.mark.usefixtures("_stream")
def test_leaves_announcing_to_the_relay_that_leads() -> None:
    message = make_message()
    MessageEvent.objects.create(message=message, tenant=message.tenant, kind="queued", at=NOW)
    relay = Leadership(locks.RELAY)
    assert relay.hold()

    try:
        assert list(sweeps.announce(NOW)) == []
    finally:
        relay.release()


# --- many rows, and two at once ---------------------------------------------------------------------------


def in_threads(*work: Callable[[], object]) -> None:
    """Runs each in a thread with a connection of its own, all at once. Raises what one of them raised."""

    def run(task: Callable[[], object]) -> None:
        try:
            task()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(work)) as pool:
        list(pool.map(run, work))


def world() -> tuple[Instance, Project]:
    instance = make_instance()
    return instance, make_project(instance.tenant)


def many(count: int, **fields: Any) -> list[Message]:
    instance, project = world()
    values = {
        "tenant": project.tenant,
        "project": project,
        "instance": instance,
        "environment": "live",
        "to": "+5511999990000",
        "category": "utility",
        "content": {"text": "Olá"},
        "body_override": True,
        "created_at": NOW,
        "deliver_until": NOW + timedelta(hours=1),
    } | fields
    return Message.objects.bulk_create(Message(**values) for _ in range(count))


def most_rows_of_a_transaction(table: str) -> int:
    """By what the server notes on each row: the transaction, or part of one, that wrote it last."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT max(rows) FROM (SELECT count(*) AS rows FROM {table} GROUP BY xmin) AS t")
        return int(cursor.fetchone()[0])


@pytest.mark.django_db(transaction=True)
def test_a_large_queue_is_read_and_written_in_small_pieces() -> None:
    sound, expired, empty = many(2500), many(1200, deliver_until=NOW), many(1300, content={})
    Message.objects.filter(pk__in=[message.pk for message in sound[::2]]).update(
        next_attempt_at=NOW + timedelta(minutes=1)
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE messaging_message")

    counts: Counter[str] = Counter()
    between = set()
    with CaptureQueriesContext(connection) as queries:
        for batch in (batch for step in sweeps.SWEEPS[:2] for batch in step.batches(NOW)):
            counts.update(batch)
            between.add(connection.connection.info.transaction_status)

    pages = [query["sql"] for query in queries if "LIMIT 1000" in query["sql"]]
    assert counts == Counter({"expired": len(expired), "invalid_content": len(empty), SEEN: 3800})
    assert len(pages) == 5  # four with rows, one without
    assert between == {TransactionStatus.IDLE}
    assert most_rows_of_a_transaction("messaging_messageevent") <= soundness.PAGE
    assert {message.status for message in Message.objects.filter(pk__in=[m.pk for m in sound])} == {"queued"}


def test_an_index_has_the_queue_in_the_order_of_its_pages() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_sort = off")  # which is cheaper while there are few
        cursor.execute(f"EXPLAIN {soundness._QUEUED}", [NOW.replace(tzinfo=None), "", 1000])
        plan = "\n".join(row[0] for row in cursor.fetchall())

    assert "Index Scan using message_queue" in plan
    assert "Sort" not in plan


EACH = 120


def mixed() -> dict[str, list[str]]:
    """Rows for every branch, by what is to become of them."""
    token = {"status": "sending", "lease_until": NOW - timedelta(seconds=1)}
    late = NOW - timedelta(minutes=5)
    rows = {
        "expired": many(EACH, deliver_until=late),
        "invalid_content": many(EACH, content={}) + many(EACH, to=""),
        "unconfirmed": many(EACH, status="sending"),
        "outcome_unknown": many(EACH, status="unconfirmed", next_attempt_at=None, deliver_until=late),
        "promoted": many(EACH, next_attempt_at=late),
        "queued": many(EACH),
        "submitted": many(EACH, status="submitted", deliver_until=late),
    }
    for message in many(EACH, **token, lease_token=uuid4(), attempts=1):
        rows["unconfirmed"].append(message)
    for message in rows["unconfirmed"][EACH:]:
        Message.objects.filter(pk=message.pk).update(lease_token=uuid4())
    Lane.objects.filter(instance=rows["unconfirmed"][-1].instance_id).update(in_flight=EACH)
    return {name: [message.pk for message in messages] for name, messages in rows.items()}


def sweep() -> Counter[str]:
    """A round without its lease, which only saves work."""
    totals: Counter[str] = Counter()
    for step in sweeps.SWEEPS:
        if step.name not in {"announced", "wake"}:
            for batch in step.batches(NOW):
                totals.update(batch)
    return totals


@pytest.mark.django_db(transaction=True)
def test_two_at_once_change_every_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps.reconciling, "BATCH", 50)
    monkeypatch.setattr(sweeps, "BATCH", 50)
    monkeypatch.setattr(soundness, "PAGE", 70)
    monkeypatch.setattr(sweeps.reconciling, "perform_all", lambda calls: [STILL_UNKNOWN for _ in calls])
    rows = mixed()
    counted: list[Counter[str]] = []

    in_threads(lambda: counted.append(sweep()), lambda: counted.append(sweep()))

    total = sum(counted, Counter())
    assert total["expired"] == EACH
    assert total["invalid_content"] == 2 * EACH
    assert total["leases"] == total["stranded"] == total["untimed"] == total["promoted"] == EACH
    assert total["decided"] + total["given_up"] == EACH
    assert _ends(rows["expired"]) == {("failed", "expired"): EACH}
    assert _ends(rows["invalid_content"]) == {("failed", "invalid_content"): 2 * EACH}
    assert _ends(rows["outcome_unknown"]) == {("failed", "outcome_unknown"): EACH}
    assert _ends(rows["unconfirmed"]) == {("unconfirmed", ""): 2 * EACH}
    assert _ends(rows["submitted"]) == {("submitted", ""): EACH}
    assert _ends(rows["queued"] + rows["promoted"]) == {("queued", ""): 2 * EACH}
    assert MessageEvent.objects.count() == 6 * EACH  # one for each change of a status, and none besides
    assert not MessageEvent.objects.filter(applied=False).exists()
    assert not Lane.objects.exclude(in_flight=0).exists()


def _ends(ids: list[str]) -> dict[tuple[str, str], int]:
    return dict(Counter(Message.objects.filter(pk__in=ids).values_list("status", "failure_code")))


def test_another_run_finds_nothing() -> None:
    mixed()
    sweep()

    again = sweep()

    assert {name for name, count in again.items() if count} == {SEEN}
