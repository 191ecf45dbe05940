"""Who is sent next, when, and by whom."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from accounts.models import Project
from instances import breaking
from instances.models import Breaker, Instance, Lane
from messaging import picking
from messaging.claiming import claim
from messaging.models import Message, MessageEvent, Status
from tests.factories import (
    NOW,
    make_instance,
    make_message,
    make_opt_in,
    make_project,
    make_tenant,
)

pytestmark = pytest.mark.django_db


def claim_next(instance: Instance, now: Any = NOW) -> str | None:
    """Claims, and frees the lane again, so that only the order decides."""
    claims = claim([instance.pk], now=now)
    Lane.objects.filter(instance=instance).update(in_flight=0, next_send_at=now, next_urgent_at=now)
    return claims[0].message.id if claims else None


def test_makes_the_message_sending_under_a_lease(settings: Any) -> None:
    message = make_message(to="+5511988887777", content={"text": "Oi, Ana", "footer": "Loja"})

    (claimed,) = claim([message.instance_id], now=NOW)

    message.refresh_from_db()
    assert (message.status, message.attempts, message.attempted_at) == (Status.SENDING, 1, NOW)
    assert message.lease_token == claimed.lease_token
    assert message.lease_until == NOW + settings.LEASE
    assert (claimed.message.to, claimed.message.text, claimed.message.footer) == (
        "+5511988887777",
        "Oi, Ana",
        "Loja",
    )
    assert Lane.objects.get(instance=message.instance_id).in_flight == 1


def test_the_lease_outlives_the_longest_call(settings: Any) -> None:
    longest_typing = timedelta(seconds=5 + 5)

    assert timedelta(seconds=settings.SEND_TIMEOUT_SECONDS) + longest_typing <= settings.LEASE


def test_urgent_goes_first_then_the_earliest_deadline_then_age() -> None:
    instance = make_instance()
    project = make_project(instance.tenant)
    relaxed = make_message(project, instance, id="a", deliver_until=NOW + timedelta(hours=2))
    older = make_message(project, instance, id="b", deliver_until=NOW + timedelta(hours=1))
    newer = make_message(project, instance, id="c", deliver_until=NOW + timedelta(hours=1))
    urgent = make_message(project, instance, id="d", deliver_until=NOW + timedelta(hours=3), urgent=True)

    order = [claim_next(instance) for _ in range(5)]

    assert order == [urgent.pk, older.pk, newer.pk, relaxed.pk, None]


def test_projects_take_turns_however_long_one_queue_is() -> None:
    instance = make_instance()
    busy, quiet = make_project(instance.tenant), make_project(instance.tenant)
    for _ in range(20):
        make_message(busy, instance)
    claim_next(instance)
    waiting = make_message(quiet, instance, deliver_until=NOW + timedelta(hours=5))

    assert waiting.pk in {claim_next(instance), claim_next(instance)}


def test_a_message_of_the_future_waits_until_it_is_promoted() -> None:
    message = make_message(next_attempt_at=NOW + timedelta(minutes=1))

    assert claim([message.instance_id], now=NOW + timedelta(hours=0, minutes=2)) == []


def test_keeps_the_pace_across_claims() -> None:
    instance = make_instance(pace_least_seconds=30, pace_most_seconds=46, concurrency=5)
    for _ in range(2):
        make_message(instance=instance)

    first = claim([instance.pk], now=NOW)
    gap = Lane.objects.get(instance=instance).next_send_at - NOW
    too_early = claim([instance.pk], now=NOW + timedelta(seconds=29))
    in_time = claim([instance.pk], now=NOW + timedelta(seconds=46))

    assert (len(first), len(too_early), len(in_time)) == (1, 0, 1)
    assert timedelta(seconds=30) <= gap <= timedelta(seconds=46)


def test_an_urgent_message_leaves_a_short_gap() -> None:
    message = make_message(
        instance=make_instance(pace_least_seconds=30, pace_most_seconds=46, urgent_gap_seconds=2), urgent=True
    )

    claim([message.instance_id], now=NOW)

    assert Lane.objects.get(instance=message.instance_id).next_send_at == NOW + timedelta(seconds=2)


def test_never_has_more_in_flight_than_the_concurrency() -> None:
    instance = make_instance(concurrency=2)
    for _ in range(3):
        make_message(instance=instance)

    claims = [claim([instance.pk], now=NOW) for _ in range(3)]

    assert [len(batch) for batch in claims] == [1, 1, 0]


@pytest.mark.parametrize(
    ("fields", "reason"), [({"status": "closed"}, "closed"), ({"paused": True}, "paused")]
)
def test_a_closed_gate_is_told_once(fields: dict[str, Any], reason: str) -> None:
    message = make_message(instance=make_instance(**fields))

    for _ in range(3):
        assert claim([message.instance_id], now=NOW) == []

    held = MessageEvent.objects.filter(message=message, kind="held")
    assert [event.detail for event in held] == [{"gate": "instance", "reason": reason}]
    message.refresh_from_db()
    assert (message.status, message.attempts) == (Status.QUEUED, 0)


def test_refuses_what_is_past_its_deadline() -> None:
    message = make_message(deliver_until=NOW)

    assert claim([message.instance_id], now=NOW) == []

    message.refresh_from_db()
    assert (message.status, message.failure_code) == (Status.FAILED, "expired")


def test_refuses_a_recipient_who_opted_out_after_it_was_accepted() -> None:
    message = make_message()
    make_opt_in(message.tenant, message.to, revoked_at=NOW)

    assert claim([message.instance_id], now=NOW) == []

    message.refresh_from_db()
    assert (message.status, message.failure_code) == (Status.FAILED, "opted_out")


def test_another_tenants_opt_out_does_not_matter() -> None:
    message = make_message()
    make_opt_in(make_tenant(), message.to, revoked_at=NOW)

    assert len(claim([message.instance_id], now=NOW)) == 1


def test_takes_one_message_for_each_of_many_instances() -> None:
    messages = [make_message() for _ in range(5)]

    claims = claim([message.instance_id for message in messages], now=NOW)

    assert {each.message.id for each in claims} == {message.pk for message in messages}


def test_a_message_of_which_a_gate_makes_no_sense_does_not_keep_its_queue() -> None:
    """Where the provider has gates of the person, they read the content before it is put together."""
    instance = make_instance(provider="instagram", created_at=NOW)
    content = {"text": "a", "comment": {"mode": "private"}}
    broken = make_message(instance=instance, content=content, deliver_until=NOW + timedelta(minutes=1))
    sound = make_message(instance=instance)

    assert [each.message.id for each in claim([instance.pk], now=NOW)] == [sound.pk]
    broken.refresh_from_db()
    assert (broken.status, broken.failure_code) == ("failed", "invalid_content")


def test_touches_few_pages_however_long_the_queue_is() -> None:
    """Measured bound: 200 pages at 20 projects. A second index that could serve the claim would break it."""
    instance = make_instance()
    projects = [make_project(instance.tenant) for _ in range(20)]
    _fill(instance, projects, ready=2000, later=2000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE messaging_message")
        cursor.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {picking._PICK}", [[instance.pk], [False], [0.0]]
        )
        plan = cursor.fetchone()[0][0]["Plan"]

    assert plan["Actual Rows"] == 1
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 200


def _fill(instance: Instance, projects: list[Project], *, ready: int, later: int) -> None:
    template = make_message(projects[0], instance)
    rows = []
    for number in range(ready + later):
        values = {field.attname: getattr(template, field.attname) for field in Message._meta.concrete_fields}
        values |= {
            "id": f"m{number:05}",
            "project_id": projects[number % len(projects)].pk,
            "next_attempt_at": None if number < ready else NOW + timedelta(hours=1),
        }
        rows.append(Message(**values))
    Message.objects.bulk_create(rows, batch_size=500)


@pytest.mark.django_db(transaction=True)
def test_two_processes_never_claim_the_same_message() -> None:
    instances = [make_instance(concurrency=5) for _ in range(5)]
    for instance in instances:
        project = make_project(instance.tenant)
        for _ in range(8):
            make_message(project, instance, deliver_until=timezone.now() + timedelta(hours=1))
    ids = [instance.pk for instance in instances]
    claimed: list[str] = []

    def work() -> None:
        for _ in range(20):
            claimed.extend(each.message.id for each in claim(ids, now=timezone.now()))
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(claimed) == len(set(claimed)) == 25  # five instances, never more than five in flight on each
    assert set(Lane.objects.values_list("in_flight", flat=True)) == {5}


# --- weights, caps, urgency and breakers ------------------------------------------------------------------


def served(instance: Instance, count: int) -> list[int]:
    """The projects of the next `count` messages that the instance takes."""
    ids = [claim_next(instance) for _ in range(count)]
    projects = dict(Message.objects.filter(pk__in=ids).values_list("pk", "project_id"))
    return [projects[key] for key in ids if key]


def test_turns_follow_the_weights() -> None:
    instance = make_instance()
    heavy, light = make_project(instance.tenant, weight=3), make_project(instance.tenant)
    for _ in range(12):
        make_message(heavy, instance)
        make_message(light, instance)

    turns = served(instance, 8)

    assert (turns.count(heavy.pk), turns.count(light.pk)) == (6, 2)


def test_a_project_cannot_save_up_turns_while_it_is_idle() -> None:
    instance = make_instance()
    busy, returning = make_project(instance.tenant), make_project(instance.tenant)
    for _ in range(10):
        make_message(busy, instance)
    served(instance, 6)
    for _ in range(4):
        make_message(returning, instance)

    turns = served(instance, 8)

    assert turns.count(busy.pk) == 4
    assert all(turns[start : start + 2].count(busy.pk) == 1 for start in (0, 2, 4))


def test_urgent_does_not_wait_for_the_pace_but_for_the_short_gap() -> None:
    instance = make_instance(pace_least_seconds=30, pace_most_seconds=46, urgent_gap_seconds=2)
    project = make_project(instance.tenant)
    make_message(project, instance), make_message(project, instance)
    claim([instance.pk], now=NOW)
    Lane.objects.update(in_flight=0)
    urgent = make_message(project, instance, urgent=True)

    too_soon = claim([instance.pk], now=NOW + timedelta(seconds=1))
    in_time = claim([instance.pk], now=NOW + timedelta(seconds=2))
    Lane.objects.update(in_flight=0)
    normal = claim([instance.pk], now=NOW + timedelta(seconds=5))

    assert too_soon == []
    assert [each.message.id for each in in_time] == [urgent.pk]
    assert normal == []  # the pace of the first one still holds


def test_a_message_found_late_leaves_no_gap() -> None:
    message = make_message(instance=make_instance(pace_least_seconds=30, pace_most_seconds=46), late=True)

    claim([message.instance_id], now=NOW)

    assert Lane.objects.get(instance=message.instance_id).next_send_at == NOW


def test_stops_at_the_daily_cap_until_midnight_of_the_tenant() -> None:
    instance = make_instance(daily_cap=2, concurrency=5)
    project = make_project(instance.tenant)
    for _ in range(3):
        make_message(project, instance, deliver_until=NOW + timedelta(days=2))

    taken = [len(claim([instance.pk], now=NOW)) for _ in range(3)]
    midnight_in_sao_paulo = NOW.replace(hour=3) + timedelta(days=1)
    tomorrow = claim([instance.pk], now=midnight_in_sao_paulo)

    assert (taken, len(tomorrow)) == ([1, 1, 0], 1)
    held = MessageEvent.objects.get(kind="held")
    assert held.detail == {
        "gate": "daily_cap",
        "reason": "2 of 2 today",
        "until": "2026-11-30T00:00:00-03:00",
    }


@pytest.fixture
def tripped() -> Instance:
    """An instance whose server failed five times in a row just now."""
    instance = make_instance()
    breaking.note(
        answered=[],
        failures=[breaking.Failure(instance.server_id, instance.pk, "provider_unreachable")]
        * breaking.OPENS_AFTER,
        now=NOW,
    )
    return instance


def test_an_open_breaker_holds_everything_and_costs_no_attempt(tripped: Instance) -> None:
    message = make_message(instance=tripped)

    assert claim([tripped.pk], now=NOW + breaking.SHORTEST_OPEN / 2) == []

    message.refresh_from_db()
    assert (message.status, message.attempts, message.held_by) == (Status.QUEUED, 0, "breaker")


def test_a_half_open_breaker_lets_one_probe_through(tripped: Instance) -> None:
    neighbour = make_instance(tripped.tenant, server=tripped.server)
    make_message(instance=tripped), make_message(instance=neighbour)
    half_open = NOW + breaking.SHORTEST_OPEN

    first = claim([tripped.pk, neighbour.pk], now=half_open)
    second = claim([tripped.pk, neighbour.pk], now=half_open)
    breaking.note(answered=[tripped.server_id], failures=[], now=half_open)
    third = claim([tripped.pk, neighbour.pk], now=half_open)

    assert (len(first), len(second), len(third)) == (1, 0, 1)


def test_a_probe_with_nothing_to_send_is_given_back(tripped: Instance) -> None:
    half_open = NOW + breaking.SHORTEST_OPEN
    assert claim([tripped.pk], now=half_open) == []

    make_message(instance=tripped)

    assert len(claim([tripped.pk], now=half_open)) == 1


def test_a_probe_whose_message_is_refused_is_given_back(tripped: Instance) -> None:
    half_open = NOW + breaking.SHORTEST_OPEN
    make_message(instance=tripped, deliver_until=half_open)
    assert claim([tripped.pk], now=half_open) == []

    make_message(instance=tripped)

    assert len(claim([tripped.pk], now=half_open)) == 1


def test_each_failed_probe_keeps_the_breaker_open_longer(tripped: Instance) -> None:
    later = NOW + timedelta(minutes=1)

    breaking.note(
        answered=[],
        failures=[breaking.Failure(tripped.server_id, tripped.pk, "provider_unreachable")],
        now=later,
    )

    breaker = Breaker.objects.get(server=tripped.server)
    assert (breaker.open_until, breaker.probe_until) == (later + 2 * breaking.SHORTEST_OPEN, None)


def test_calls_that_fail_together_open_it_no_longer_than_five_would(tripped: Instance) -> None:
    """Whatever is in flight when a server restarts fails at once; that is one outage, not many."""
    down = breaking.Failure(tripped.server_id, tripped.pk, "provider_unreachable")
    other = make_instance()
    elsewhere = breaking.Failure(other.server_id, other.pk, "provider_unreachable")

    breaking.note(answered=[], failures=[down] * 40, now=NOW + timedelta(seconds=1))
    breaking.note(answered=[], failures=[elsewhere] * 40, now=NOW)

    opened = Breaker.objects.filter(server__in=[tripped.server_id, other.server_id])
    assert {breaker.open_until for breaker in opened} == {NOW + breaking.SHORTEST_OPEN}


def test_another_servers_breaker_does_not_matter(tripped: Instance) -> None:
    message = make_message()

    assert len(claim([message.instance_id], now=NOW)) == 1
