"""An alert is told once, until it is over; whatever happens, whoever raises it goes on."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any, get_args

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from pilot.alerts import open_subjects, raise_alert, recover
from pilot.alerts.kinds import KINDS, KindName
from pilot.models import Alert, AlertDelivery
from pilot.redis import client
from tests.factories import NOW, make_tenant

MINUTE = timedelta(minutes=1)
apart = pytest.mark.django_db(transaction=True)  # commits, for several connections


@pytest.fixture(autouse=True)
def _channels(settings: Any) -> None:
    settings.PUSHOVER_TOKEN = settings.PUSHOVER_USER = "secret"
    settings.ALERT_EMAILS = ["ops@example.com", "boss@example.com"]


def deliveries(**fields: Any) -> list[tuple[str, str, str]]:
    rows = AlertDelivery.objects.filter(**fields).order_by("id")
    return list(rows.values_list("notice", "channel", "recipient"))


def test_knows_the_words_of_every_kind() -> None:
    assert set(KINDS) == set(get_args(KindName))


@pytest.mark.django_db
def test_tells_each_recipient_of_each_channel_once() -> None:
    raised = [raise_alert("dead_letter", "stream:status", now=NOW) for _ in range(3)]

    assert raised == [True, False, False]
    assert Alert.objects.get().subject == "stream:status"
    assert deliveries() == [
        ("raised", "pushover", ""),
        ("raised", "email", "ops@example.com"),
        ("raised", "email", "boss@example.com"),
    ]


@pytest.mark.django_db
def test_tells_apart_by_kind_and_subject() -> None:
    assert raise_alert("queue_too_long", 7)
    assert raise_alert("queue_too_long", 8)
    assert raise_alert("oldest_too_old", 7)
    assert open_subjects("queue_too_long") == {"7", "8"}


@pytest.mark.django_db
def test_remembers_that_it_was_seen_again() -> None:
    for minutes in (0, 0.5, 2, 2.5, 4):
        raise_alert("dead_letter", "stream:status", now=NOW + minutes * MINUTE)

    alert = Alert.objects.get()
    assert (alert.times, alert.raised_at, alert.seen_at) == (3, NOW, NOW + 4 * MINUTE)


@pytest.mark.django_db
def test_says_once_that_it_is_over_to_those_who_were_told() -> None:
    raise_alert("instance_down", 7, now=NOW)
    AlertDelivery.objects.filter(recipient="boss@example.com").update(state="failed")

    ended = [recover("instance_down", 7, now=NOW + MINUTE) for _ in range(3)]

    assert ended == [True, False, False]
    assert Alert.objects.get().recovered_at == NOW + MINUTE
    assert deliveries(notice="recovered") == [
        ("recovered", "pushover", ""),
        ("recovered", "email", "ops@example.com"),
    ]


@pytest.mark.django_db
def test_may_end_without_a_word() -> None:
    raise_alert("instance_down", 7)

    assert recover("instance_down", 7, silently=True)
    assert not deliveries(notice="recovered")


@pytest.mark.django_db
def test_tells_again_when_it_comes_back() -> None:
    raise_alert("instance_down", 7)
    recover("instance_down", 7)

    assert raise_alert("instance_down", 7)
    assert len(deliveries(notice="raised", channel="pushover")) == 2


@pytest.mark.django_db
def test_ends_nothing_that_is_not_open() -> None:
    assert not recover("instance_down", 7)
    assert not deliveries()


@pytest.mark.django_db
def test_is_there_without_any_channel(settings: Any) -> None:
    settings.ALERT_CHANNELS = {}

    assert raise_alert("instance_down", 7)
    assert not deliveries()


class Deaf:
    audience = "operators"

    def recipients(self, alert: Alert) -> list[Any]:
        Alert.objects.get(pk=0)
        raise AssertionError


@pytest.mark.django_db
def test_a_broken_channel_does_not_keep_the_others_from_telling(settings: Any) -> None:
    settings.ALERT_CHANNELS = {
        "broken": f"{__name__}.Deaf",
        "gone": "pilot.no_such.Channel",
        **settings.ALERT_CHANNELS,
    }

    assert raise_alert("dead_letter", "stream:status")
    assert ("raised", "pushover", "") in deliveries()


@pytest.mark.django_db
def test_an_address_that_cannot_be_kept_does_not_keep_the_others_from_telling(settings: Any) -> None:
    settings.ALERT_EMAILS = ["ops@example.com", "x" * 300]

    assert raise_alert("dead_letter", "stream:status")
    assert deliveries() == [("raised", "pushover", "")]


@pytest.mark.django_db
def test_tells_an_address_that_stands_twice_once(settings: Any) -> None:
    settings.ALERT_EMAILS = ["ops@example.com"] * 2

    raise_alert("dead_letter", "stream:status")

    assert deliveries(channel="email") == [("raised", "email", "ops@example.com")]


@pytest.mark.django_db
def test_wakes_the_channels_once_it_is_committed(
    monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    woken: list[Any] = []
    monkeypatch.setattr("pilot.alerts.wake_alerts", woken.append)

    with django_capture_on_commit_callbacks(execute=True):
        raise_alert("dead_letter", "stream:status")
        assert not woken

    assert woken == [["email", "pushover"]]


# --- many at once -----------------------------------------------------------------------------------------


def at_once(work: Any, *, times: int) -> list[Any]:
    """What `work` gives in so many threads, which all start together."""
    gate, results = threading.Barrier(times), []

    def run() -> None:
        gate.wait()
        try:
            results.append(work())
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@apart
def test_twenty_at_once_raise_one_alert_with_one_delivery_for_each_recipient() -> None:
    raised = at_once(lambda: raise_alert("instance_down", 7), times=20)

    assert sorted(raised) == [False] * 19 + [True]
    assert Alert.objects.count() == 1
    assert len(deliveries()) == 3


@pytest.mark.django_db
def test_a_flushed_redis_does_not_make_it_tell_again() -> None:
    raise_alert("instance_down", 7)
    client().flushdb()

    assert not raise_alert("instance_down", 7)
    assert len(deliveries()) == 3


@apart
def test_twenty_at_once_end_it_once() -> None:
    raise_alert("instance_down", 7)

    ended = at_once(lambda: recover("instance_down", 7), times=20)

    assert sorted(ended) == [False] * 19 + [True]
    assert len(deliveries(notice="recovered")) == 3


@apart
def test_does_not_wait_for_a_transaction_that_raised_the_same() -> None:
    with transaction.atomic():
        raise_alert("instance_down", 7)
        started = time.monotonic()
        others = at_once(lambda: raise_alert("instance_down", 7), times=1)
        waited = time.monotonic() - started

    assert others == [False]
    assert waited < 15  # a lock would be waited for until the statement's timeout, 30 s
    assert Alert.objects.count() == 1


# --- whoever raises it goes on ----------------------------------------------------------------------------


def refuse(*_args: Any, **_kwargs: Any) -> None:
    raise IntegrityError("no")


def fail_in_the_database(*_args: Any, **_kwargs: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 / 0")


@apart
@pytest.mark.parametrize("failure", [refuse, fail_in_the_database])
def test_a_failing_database_does_not_reach_the_caller(monkeypatch: pytest.MonkeyPatch, failure: Any) -> None:
    monkeypatch.setattr(Alert, "save", failure)

    assert not raise_alert("instance_down", 7)
    with transaction.atomic():
        tenant = make_tenant()
        assert not raise_alert("instance_down", 7)
        tenant.name = "goes on"
        tenant.save()

    tenant.refresh_from_db()
    assert tenant.name == "goes on"
    assert not Alert.objects.exists()


@apart
def test_a_database_that_is_away_does_not_reach_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_args: Any) -> None:
        raise DatabaseError("away")

    connection.close()
    monkeypatch.setattr(connection, "connect", away)

    assert not raise_alert("instance_down", 7)
    assert not recover("instance_down", 7)


@apart
def test_a_transaction_that_is_broken_already_stays_the_callers_business() -> None:
    with pytest.raises(DatabaseError), transaction.atomic():  # noqa: PT012
        with pytest.raises(DatabaseError):
            fail_in_the_database()
        assert not raise_alert("instance_down", 7)
        assert not recover("instance_down", 7)
        make_tenant()


@pytest.mark.django_db
def test_tells_also_what_cannot_be_stored_as_it_is() -> None:
    with transaction.atomic():
        raise_alert(
            "dead_letter", "a\x00b" + "c" * 500, detail={"reason": "\x00\ud800no", "raw": b"x", "n": 2**70}
        )

    alert = Alert.objects.get()
    assert alert.subject == "a b" + "c" * 197
    assert alert.detail == {"reason": "  no", "raw": "b'x'", "n": 2**70}


@apart
def test_a_tenant_that_is_gone_does_not_fail_the_callers_commit() -> None:
    with transaction.atomic():
        assert raise_alert("instance_down", 7, tenant_id=999_999)

    assert Alert.objects.get().tenant_id == 999_999
