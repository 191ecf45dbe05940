"""What comes of an attempt, and what is thought of an endpoint afterwards."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from accounts.models import Event
from pilot import tallies
from pilot.models import Alert
from pilot.outbound import Answer, Unanswered
from tests.factories import NOW
from tests.webhooks.tellings import fan_out, make_endpoint, tell
from webhooks.claiming import claim, lease
from webhooks.models import WebhookDelivery, WebhookEndpoint
from webhooks.settling import KEPT_ATTEMPTS, SILENT_CALLS, Settlement, settle
from webhooks.tallying import BOUNDS

pytestmark = pytest.mark.django_db

SILENT = Unanswered("timeout", "No answer within 15 s.", seconds=15)


def answer(status: int, **headers: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, names, b"", 0.1)


def attempt(result: Answer | Unanswered, *, now: datetime = NOW, room: int = 1000) -> list[WebhookDelivery]:
    """Lets everything that is due come to this result."""
    claims = claim(room=room, now=now)
    settle([Settlement(each, result, {"status": 1}) for each in claims], now=now)
    return list(WebhookDelivery.objects.filter(pk__in=[each.delivery.pk for each in claims]))


def fail(endpoint: WebhookEndpoint, times: int, *, now: datetime = NOW) -> WebhookEndpoint:
    tell(endpoint, times)
    attempt(SILENT, now=now)
    endpoint.refresh_from_db()
    return endpoint


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_an_answer_of_success_delivers(status: int) -> None:
    endpoint = make_endpoint()
    tell(endpoint)

    (row,) = attempt(answer(status))

    assert (row.status, row.last_status_code, row.finished_at) == ("delivered", status, NOW)
    assert (row.lease_token, row.lease_until, row.next_attempt_at) == (None, None, None)
    endpoint.refresh_from_db()
    assert (endpoint.succeeded_at, endpoint.failing_since) == (NOW, None)


@pytest.mark.parametrize("status", [100, 301, 302, 307, 400, 401, 403, 404, 422, 429, 500, 502, 503])
def test_anything_else_is_tried_again(status: int) -> None:
    endpoint = make_endpoint()
    tell(endpoint)

    (row,) = attempt(answer(status))

    assert (row.status, row.untried, row.attempts, row.last_status_code) == ("pending", False, 1, status)
    assert row.next_attempt_at
    assert timedelta(seconds=5) <= row.next_attempt_at - NOW <= timedelta(seconds=6)
    endpoint.refresh_from_db()
    assert endpoint.failing_since == NOW


def test_no_answer_is_tried_again_and_says_why() -> None:
    tell(make_endpoint())

    (row,) = attempt(SILENT)

    assert (row.status, row.last_status_code, row.last_error) == ("pending", None, "timeout")


def test_fails_after_the_last_attempt() -> None:
    endpoint = make_endpoint()
    tell(endpoint)
    now = NOW
    statuses = []
    for _number in range(8):
        (row,) = attempt(answer(500), now=now)
        statuses.append(row.status)
        now = row.next_attempt_at or now

    assert statuses == ["pending"] * 7 + ["failed"]
    assert (row.attempts, len(row.log)) == (8, 8)
    assert claim(room=10, now=now + timedelta(days=9)) == []


@pytest.mark.parametrize("status", [429, 503])
def test_waits_as_long_as_the_receiver_asks(status: int) -> None:
    endpoint = make_endpoint()
    tell(endpoint, 2)

    rows = attempt(answer(status, retry_after="3600"))

    assert {row.next_attempt_at for row in rows} == {NOW + timedelta(hours=1)}
    endpoint.refresh_from_db()
    assert endpoint.open_until == NOW + timedelta(minutes=5)


def test_slowing_down_is_not_a_breakdown() -> None:
    endpoint = make_endpoint()
    tell(endpoint)
    attempt(answer(429, retry_after="30"))
    tell(endpoint)

    assert claim(room=10, now=NOW + timedelta(seconds=29)) == []
    attempt(answer(200), now=NOW + timedelta(seconds=30))

    endpoint.refresh_from_db()
    assert (endpoint.open_until, endpoint.silent_calls, endpoint.failing_since) == (None, 0, None)


def test_410_switches_the_endpoint_off() -> None:
    endpoint = make_endpoint()
    other = make_endpoint(endpoint.tenant)
    tell(endpoint)
    (claimed,) = [each for each in claim(room=10, now=NOW) if each.endpoint.pk == endpoint.pk]

    settle([Settlement(claimed, answer(410), {})], now=NOW)

    endpoint.refresh_from_db()
    claimed.delivery.refresh_from_db()
    assert (endpoint.disabled_at, endpoint.disabled_by) == (NOW, "gone")
    assert claimed.delivery.status == "failed"
    fan_out()
    told = [row.event for row in other.deliveries.order_by("id").select_related("event")]
    assert told[-1].type == "endpoint.disabled"
    assert told[-1].data == {
        "endpoint_id": str(endpoint.pk),
        "url": endpoint.url,
        "reason": "gone",
        "failing_since": NOW.isoformat(),
    }


def test_a_day_of_failures_switches_the_endpoint_off_with_one_notice() -> None:
    endpoint = fail(make_endpoint(), 1)
    tell(endpoint, 3)
    almost = NOW + timedelta(hours=23)
    attempt(answer(500), now=almost)
    endpoint.refresh_from_db()
    assert endpoint.enabled

    attempt(answer(500), now=NOW + timedelta(hours=24, seconds=20))

    endpoint.refresh_from_db()
    assert endpoint.disabled_by == "failing"
    alert = Alert.objects.get(kind="webhook_endpoint_disabled")
    assert (alert.subject, alert.tenant) == (str(endpoint.pk), endpoint.tenant)
    assert Event.objects.filter(kind="endpoint.disabled").count() == 1


def test_one_success_starts_the_day_anew() -> None:
    endpoint = fail(make_endpoint(), 1)
    tell(endpoint)
    attempt(answer(200), now=NOW + timedelta(hours=20))
    tell(endpoint)
    attempt(answer(500), now=NOW + timedelta(hours=25))

    endpoint.refresh_from_db()
    assert endpoint.enabled
    assert endpoint.failing_since == NOW + timedelta(hours=25)


def test_what_waits_stays_when_the_endpoint_is_switched_off() -> None:
    endpoint = make_endpoint()
    tell(endpoint, 3)
    attempt(answer(410), room=1)

    assert list(endpoint.deliveries.order_by("id").values_list("status", flat=True)) == [
        "failed",
        "pending",
        "pending",
    ]


# --- the breaker ---


def test_silence_in_a_row_leaves_the_endpoint_alone() -> None:
    endpoint = fail(make_endpoint(), SILENT_CALLS - 1)
    assert endpoint.open_until is None

    fail(endpoint, 1)

    assert endpoint.open_until == NOW + timedelta(seconds=15)


def test_many_silences_at_once_count_only_up_to_the_threshold() -> None:
    endpoint = fail(make_endpoint(), 20)

    assert (endpoint.silent_calls, endpoint.open_until) == (SILENT_CALLS, NOW + timedelta(seconds=15))


def test_is_left_alone_twice_as_long_after_each_probe_that_fails() -> None:
    endpoint = fail(make_endpoint(), 30)
    now, pauses = NOW, []
    for _number in range(7):
        now = endpoint.open_until or now
        attempt(SILENT, now=now)
        endpoint.refresh_from_db()
        assert endpoint.open_until
        pauses.append((endpoint.open_until - now).total_seconds())

    assert pauses == [30, 60, 120, 240, 300, 300, 300]


@pytest.mark.parametrize("status", [200, 404, 500])
def test_any_answer_to_the_probe_ends_the_pause(status: int) -> None:
    endpoint = fail(make_endpoint(), 6)
    tell(endpoint, 5)

    attempt(answer(status), now=NOW + timedelta(seconds=15))

    endpoint.refresh_from_db()
    assert (endpoint.open_until, endpoint.silent_calls) == (None, 0)
    assert len(claim(room=1000, now=NOW + timedelta(seconds=15))) > 1


def test_a_call_that_was_under_way_when_the_pause_began_is_no_news() -> None:
    endpoint = make_endpoint()
    tell(endpoint, 12)
    claims = claim(room=1000, now=NOW)
    later = NOW + timedelta(seconds=5)
    settle([Settlement(each, SILENT, {}) for each in claims[:6]], now=NOW)
    settle([Settlement(each, SILENT, {}) for each in claims[6:]], now=later)

    endpoint.refresh_from_db()
    assert endpoint.open_until == NOW + timedelta(seconds=15)


def test_an_answer_that_says_no_is_no_silence() -> None:
    endpoint = make_endpoint()
    tell(endpoint, 10)
    attempt(answer(500))

    endpoint.refresh_from_db()
    assert (endpoint.silent_calls, endpoint.open_until) == (0, None)


# --- races ---


def test_whoever_lost_its_lease_settles_nothing() -> None:
    endpoint = make_endpoint()
    tell(endpoint)
    (old,) = claim(room=1, now=NOW)
    WebhookDelivery.objects.update(lease_token=None, lease_until=None, untried=False, next_attempt_at=NOW)
    (new,) = claim(room=1, now=NOW)

    settle([Settlement(old, answer(500), {})], now=NOW)
    assert WebhookDelivery.objects.get().lease_token == new.lease_token
    settle([Settlement(new, answer(200), {})], now=NOW)
    settle([Settlement(new, answer(500), {})], now=NOW)

    assert WebhookDelivery.objects.get().status == "delivered"


def test_keeps_the_last_attempts() -> None:
    tell(make_endpoint())
    row: Any = None
    for number in range(KEPT_ATTEMPTS + 3):
        WebhookDelivery.objects.update(status="pending", next_attempt_at=NOW, attempts=0)
        WebhookEndpoint.objects.update(open_until=None)
        claims = claim(room=1, now=NOW)
        settle([Settlement(claims[0], answer(500), {"number": number})], now=NOW)
        row = WebhookDelivery.objects.get()

    assert [entry["number"] for entry in row.log] == list(range(3, KEPT_ATTEMPTS + 3))


def test_all_is_well_writes_no_endpoint(django_assert_num_queries: Any) -> None:
    endpoint = make_endpoint(succeeded_at=NOW)
    tell(endpoint, 3)
    claims = claim(room=1000, now=NOW)

    with django_assert_num_queries(0):  # the one statement is prepared, and not Django's
        settle([Settlement(each, answer(200), {}) for each in claims], now=NOW)

    assert lease() > timedelta(seconds=15)


def test_counts_attempts_by_what_was_answered() -> None:
    tell(make_endpoint(), 3)
    attempt(answer(204), room=1)
    attempt(answer(503), room=1)
    attempt(SILENT, room=1)

    found = {(name, *labels): value for name, labels, value in tallies.read()}

    assert found["webhook_seconds", "2xx", "1"] == found["webhook_seconds", "5xx", "1"] == 1
    assert found["webhook_seconds_sum", "2xx"] == pytest.approx(0.1)
    assert found["webhook_seconds", "no_answer", str(BOUNDS.index(15) + 1)] == 1
