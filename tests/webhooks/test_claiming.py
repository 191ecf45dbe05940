"""Which deliveries are made next, and that nobody waits for somebody else."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, connections, transaction

from pilot import sql
from tests.factories import NOW
from tests.webhooks.tellings import make_endpoint, tell
from webhooks import claiming
from webhooks.claiming import FIRST_SLOTS, RETRY_SLOTS, Claim, claim, lease, release_lost
from webhooks.models import WebhookDelivery, WebhookEndpoint

pytestmark = pytest.mark.django_db

BACKLOG = """
WITH events AS (
    INSERT INTO webhooks_webhookevent (name, type, tenant_id, environment, subject, sample, data, at)
    SELECT 'evt_x' || n, 'message.read', %s, 'live', 'm' || n / 4, false, '{}', %s FROM generate_series(1, 5000) AS n
    RETURNING id, subject
)
INSERT INTO webhooks_webhookdelivery
       (endpoint_id, event_id, subject, status, created_at, untried, attempts, last_error, log)
SELECT %s, id, subject, 'pending', now(), true, 0, '', '[]' FROM events ORDER BY id
"""


def take(room: int = 300, now: datetime = NOW) -> list[Claim]:
    return claim(room=room, now=now)


def ids(claims: list[Claim]) -> list[int]:
    return [each.delivery.pk for each in claims]


def end(claims: list[Claim], **fields: Any) -> None:
    """As settling does."""
    values = {"lease_token": None, "lease_until": None, "untried": False} | fields
    WebhookDelivery.objects.filter(pk__in=ids(claims)).update(**values)


def retries(endpoint: WebhookEndpoint, count: int, *, due: datetime = NOW) -> list[int]:
    made = [row.pk for row in tell(endpoint, count)]
    WebhookDelivery.objects.filter(pk__in=made).update(untried=False, attempts=1, next_attempt_at=due)
    return made


def test_takes_what_waits_in_its_order_under_a_lease() -> None:
    made = tell(make_endpoint(), 3)

    claims = take()

    assert ids(claims) == [row.pk for row in made]
    for row in WebhookDelivery.objects.all():
        assert (row.attempts, row.lease_until) == (1, NOW + lease())
    assert take() == []


def test_an_endpoint_has_only_its_slots() -> None:
    busy, other = make_endpoint(), make_endpoint()
    tell(busy, FIRST_SLOTS + 5)
    tell(other)

    claims = take(1000)

    assert sorted(each.endpoint.pk == busy.pk for each in claims) == [False] + [True] * FIRST_SLOTS
    end(claims[:2], status="delivered")
    assert len(take(1000)) == 2


def test_an_endpoint_is_claimed_for_by_one_at_a_time(transactional_db: None) -> None:
    """Whoever comes meanwhile neither waits nor counts slots that are being taken."""
    tell(make_endpoint(), FIRST_SLOTS * 3)
    meanwhile: list[Claim] = []

    def come() -> None:
        meanwhile.extend(take(1000))
        connections.close_all()

    with transaction.atomic():
        claims = take(1000)
        other = threading.Thread(target=come)
        other.start()
        other.join(timeout=10)
        assert not other.is_alive()

    assert (len(claims), meanwhile) == (FIRST_SLOTS, [])
    assert take(1000) == []


def test_a_delivery_is_leased_once() -> None:
    tell(make_endpoint())
    (first,) = take()

    again = sql.fetch(claiming._LEASE, [NOW, [first.delivery.pk], [uuid4()]])

    assert again == []


def test_one_endpoint_never_takes_all_that_is_free() -> None:
    first, second = make_endpoint(), make_endpoint()
    tell(first, 20)
    tell(second, 20)

    claims = take(16)

    assert len({each.endpoint.pk for each in claims}) == 2
    assert len(claims) == 4  # an eighth for each


def test_the_last_free_slot_goes_to_whom_nothing_is_in_flight_for() -> None:
    busy, idle = make_endpoint(), make_endpoint()
    tell(busy, 10)
    take(8)
    tell(idle)

    assert [each.endpoint.pk for each in take(1)] == [idle.pk]


def test_first_attempts_and_retries_have_slots_of_their_own() -> None:
    endpoint = make_endpoint()
    old = retries(endpoint, RETRY_SLOTS + 3)
    tell(endpoint, FIRST_SLOTS + 3)

    claims = take(1000)

    again = [pk for pk in ids(claims) if pk in old]
    assert (len(again), len(claims)) == (RETRY_SLOTS, RETRY_SLOTS + FIRST_SLOTS)


def test_retries_wait_for_their_time() -> None:
    endpoint = make_endpoint()
    retries(endpoint, 1, due=NOW + timedelta(seconds=1))

    assert take() == []
    assert len(take(now=NOW + timedelta(seconds=1))) == 1


def test_events_of_one_subject_are_told_one_after_the_other() -> None:
    endpoint = make_endpoint()
    a1, a2, a3 = (row.pk for row in tell(endpoint, 3, subject="message-a"))
    b1 = tell(endpoint, 1, subject="message-b")[-1].pk

    first = take()
    assert ids(first) == [a1, b1]
    end(first, status="delivered")
    second = take()
    assert ids(second) == [a2]
    end(second, status="delivered")
    assert ids(take()) == [a3]


def test_an_event_that_failed_does_not_hold_up_those_after_it() -> None:
    endpoint = make_endpoint()
    tell(endpoint, 2, subject="message-a")
    end(take(), next_attempt_at=NOW + timedelta(hours=1))

    assert len(take()) == 1


def test_endpoints_do_not_wait_for_each_other_in_one_subject() -> None:
    first = make_endpoint()
    make_endpoint(first.tenant)
    tell(first, 2, subject="message-a")

    assert len(take()) == 2


def test_an_endpoint_that_is_off_gets_nothing() -> None:
    endpoint = make_endpoint()
    tell(endpoint)
    WebhookEndpoint.objects.update(disabled_at=NOW, disabled_by="person")

    assert take() == []


def test_an_endpoint_that_is_left_alone_is_probed_by_one(django_assert_num_queries: Any) -> None:
    endpoint = make_endpoint()
    tell(endpoint, 5)
    retries(endpoint, 2)
    WebhookEndpoint.objects.update(open_until=NOW + timedelta(seconds=10), silent_calls=5)

    assert take() == []
    later = NOW + timedelta(seconds=10)
    (probe,) = take(now=later)
    assert probe.probe
    assert take(now=later) == []
    assert len(take(now=later + lease())) == 1, "a probe that died is replaced"


def test_a_lease_that_ran_out_is_tried_again() -> None:
    endpoint = make_endpoint()
    (row,) = tell(endpoint)
    take()

    assert release_lost(now=NOW + lease() - timedelta(seconds=1)) == 0
    assert release_lost(now=NOW + lease()) == 1
    (again,) = take(now=NOW + lease())
    assert (again.delivery.pk, again.delivery.attempts) == (row.pk, 2)


def test_a_backlog_at_one_endpoint_costs_the_claim_nothing() -> None:
    """With figures that say that nearly all rows are of one endpoint, plans once read them all for each other."""
    backlog = make_endpoint()
    tell(backlog)
    for _number in range(20):
        make_endpoint()
    with connection.cursor() as cursor:
        cursor.execute(BACKLOG, [backlog.tenant_id, NOW, backlog.pk])
        cursor.execute("ANALYZE webhooks_webhookdelivery")
        cursor.execute(f"EXPLAIN {claiming._PICK}", claiming._bounds(200, NOW))
        plan = "\n".join(row[0] for row in cursor.fetchall())

    assert "Seq Scan on webhooks_webhookdelivery" not in plan
    assert "webhooks_webhookdelivery_pkey" not in plan
    assert len(take()) == FIRST_SLOTS
