"""Notices reach their channels once, whatever the channels do; a deaf one holds up no other."""

from __future__ import annotations

import json
import smtplib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.core import mail
from django.db import connection, transaction
from django.utils import timezone
from standardwebhooks import Webhook as Verifier

from pilot.alerts import delivering, posting, raise_alert, recover
from pilot.alerts.delivering import deliver, due_channels, next_attempt, take
from pilot.models import AlertDelivery
from pilot.redis import client
from pilot.tasks import deliver_alerts
from tests.alerts.test_raising import at_once
from tests.factories import NOW, make_tenant
from tests.providers.peer import Behaviour, Peer, answer, hang, reset, trickle_body, trickle_headers

pytestmark = pytest.mark.django_db
apart = pytest.mark.django_db(transaction=True)  # commits, for several connections

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OK = answer(b'{"status":1}')
Start = Callable[[Behaviour], Peer]


class Script:
    """Behaves as told, request by request; well once nothing more was told."""

    def __init__(self, *behaviours: Behaviour) -> None:
        self._behaviours: Iterator[Behaviour] = iter(behaviours)

    def __call__(self, connection: Any, stopped: threading.Event) -> None:
        next(self._behaviours, OK)(connection, stopped)


@pytest.fixture
def pushover(peer: Start, settings: Any) -> Callable[..., Peer]:
    """Starts a Pushover that behaves so."""

    def start(*behaviours: Behaviour) -> Peer:
        server = peer(Script(*behaviours))
        settings.PUSHOVER_URL = server.url
        settings.PUSHOVER_TOKEN, settings.PUSHOVER_USER = "app-token", "user-key"
        return server

    return start


def fields(request: bytes) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(request.partition(b"\r\n\r\n")[2].decode()).items()}


def the_delivery(**which: Any) -> AlertDelivery:
    return AlertDelivery.objects.get(**which)


def wait_less(delivery: AlertDelivery) -> timedelta:
    """How long it still waits; then it waits no more."""
    wait = the_delivery(pk=delivery.pk).next_attempt_at - timezone.now()  # type: ignore[operator]
    AlertDelivery.objects.filter(pk=delivery.pk).update(next_attempt_at=timezone.now())
    return wait


def test_sends_what_pushover_expects(pushover: Any) -> None:
    server = pushover()
    tenant = make_tenant(name="Loja Azul")
    raise_alert("instance_down", 7, tenant_id=tenant.pk, detail={"name": "vendas"}, now=NOW)

    assert deliver_alerts(channel="pushover") == 1

    (request,) = server.requests
    assert request.startswith(b"POST /1/messages.json HTTP/1.1\r\n")
    assert fields(request) == {
        "token": "app-token",
        "user": "user-key",
        "title": "Instância desconectada · Loja Azul",
        "message": "A instância “vendas” está desconectada. As mensagens dela esperam até ela se conectar de novo.",
        "priority": "1",
        "timestamp": str(int(NOW.timestamp())),
    }
    assert the_delivery().state == "delivered"


def test_says_quietly_that_it_is_over(pushover: Any) -> None:
    server = pushover()
    raise_alert("instance_down", 7, detail={"name": "vendas"})
    recover("instance_down", 7)

    deliver("pushover")

    assert [(fields(each)["title"], fields(each)["priority"]) for each in server.requests] == [
        ("Instância desconectada", "1"),
        ("Encerrado: Instância desconectada", "-1"),
    ]


def test_sends_nothing_twice(pushover: Any) -> None:
    server = pushover()
    raise_alert("instance_down", 7)

    assert [deliver("pushover") for _ in range(3)] == [1, 0, 0]
    assert len(server.requests) == 1


@apart
def test_workers_that_are_woken_together_send_once(pushover: Any) -> None:
    server = pushover()
    raise_alert("instance_down", 7)

    assert sum(at_once(lambda: deliver("pushover"), times=8)) == 1
    assert len(server.requests) == 1


@apart
def test_sends_what_came_just_before_the_channel_was_free_again(
    pushover: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = pushover()
    drain, refused = delivering._drain, []

    def drain_and_be_overtaken(channel: str, until: float) -> int:
        count = drain(channel, until)
        if raise_alert("queue_too_long", 7):
            refused.extend(at_once(lambda: deliver(channel), times=1))
        return count

    monkeypatch.setattr(delivering, "_drain", drain_and_be_overtaken)
    raise_alert("instance_down", 7)

    assert deliver("pushover") == 2
    assert refused == [0]
    assert len(server.requests) == 2


@apart
def test_even_without_the_channels_lease_nobody_takes_what_another_has(pushover: Any) -> None:
    pushover()
    raise_alert("instance_down", 7)
    now = timezone.now()

    with transaction.atomic():
        ours = take("pushover", now=now)
        theirs = at_once(lambda: take("pushover", now=now), times=1)

    assert (len(ours), theirs) == (1, [[]])
    assert take("pushover", now=now) == []


def test_a_flushed_redis_loses_no_notice(pushover: Any) -> None:
    server = pushover()
    raise_alert("instance_down", 7)
    client().flushdb()

    assert due_channels(now=timezone.now()) == ["pushover"]
    assert deliver("pushover") == 1
    assert len(server.requests) == 1


def test_whoever_dies_while_sending_leaves_it_to_be_sent_again(pushover: Any) -> None:
    server = pushover()
    raise_alert("instance_down", 7)
    now = timezone.now()
    take("pushover", now=now)

    assert not take("pushover", now=now + delivering.LEASE / 2)
    (again,) = take("pushover", now=now + delivering.LEASE)
    delivering.send([again])

    assert len(server.requests) == 1
    assert (the_delivery().state, the_delivery().attempts) == ("delivered", 2)


def test_whoever_was_too_slow_does_not_overrule_who_sent_it(pushover: Any) -> None:
    pushover(OK, answer(b"", status="500 Oops"))
    raise_alert("instance_down", 7)
    now = timezone.now()
    slow, quick = take("pushover", now=now), take("pushover", now=now + delivering.LEASE)

    delivering.send(quick)
    delivering.send(slow)

    assert the_delivery().state == "delivered"


@pytest.mark.parametrize(
    "failure",
    [answer(b"", status="500 Oops"), answer(b"", status="408 Late"), reset, answer(b"", status="502 Bad")],
)
def test_tries_again_after_a_failure(pushover: Any, failure: Behaviour) -> None:
    server = pushover(failure)
    raise_alert("instance_down", 7)

    deliver("pushover")
    failed = the_delivery()
    wait = wait_less(failed)
    deliver("pushover")

    assert failed.error
    assert timedelta(seconds=50) < wait <= timedelta(minutes=1)
    assert len(server.requests) == 2
    assert (the_delivery().state, the_delivery().attempts) == ("delivered", 2)


@pytest.mark.parametrize("silence", [hang, trickle_headers])
def test_gives_up_waiting_for_an_answer(
    pushover: Any, silence: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posting, "SECONDS", 0.3)
    pushover(silence)
    raise_alert("instance_down", 7)

    started = time.monotonic()
    deliver("pushover")

    assert time.monotonic() - started < 5
    assert the_delivery().state == "waiting"
    assert "Timeout" in the_delivery().error


def test_needs_no_more_of_an_answer_than_its_status(pushover: Any) -> None:
    pushover(trickle_body)
    raise_alert("instance_down", 7)

    deliver("pushover")

    assert the_delivery().state == "delivered"


@pytest.mark.parametrize(("wanted", "waits"), [("600", 600), ("999999", 3600), ("soon", 60)])
def test_waits_as_long_as_it_is_told(pushover: Any, wanted: str, waits: int) -> None:
    pushover(answer(b"", status="429 Too Many", headers=f"Retry-After: {wanted}\r\n"))
    raise_alert("instance_down", 7)

    deliver("pushover")

    assert abs(wait_less(the_delivery()) - timedelta(seconds=waits)) < timedelta(seconds=10)


def test_understands_a_moment_to_wait_for(pushover: Any) -> None:
    moment = (timezone.now() + timedelta(minutes=20)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    pushover(answer(b"", status="503 Busy", headers=f"Retry-After: {moment}\r\n"))
    raise_alert("instance_down", 7)

    deliver("pushover")

    assert timedelta(minutes=19) < wait_less(the_delivery()) <= timedelta(minutes=20)


@pytest.mark.parametrize("status", ["400 Bad", "404 Not Found", "302 Found"])
def test_does_not_repeat_what_will_not_change(pushover: Any, status: str, peer: Start) -> None:
    elsewhere = peer(OK)
    server = pushover(answer(b"", status=status, headers=f"Location: {elsewhere.url}\r\n"))
    raise_alert("instance_down", 7)

    deliver("pushover")

    assert (len(server.requests), elsewhere.requests) == (1, [])
    assert (the_delivery().state, the_delivery().error) == ("failed", f"HTTP {status[:3]}")
    assert not due_channels(now=timezone.now() + timedelta(days=1))


def test_gives_up_in_the_end() -> None:
    waits = [next_attempt(attempts=number, now=NOW) for number in range(1, delivering.ATTEMPTS + 1)]

    assert [each and (each - NOW).total_seconds() / 60 for each in waits] == [
        *(1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60),
        None,
    ]


def test_the_end_of_it_waits_for_its_beginning(pushover: Any) -> None:
    server = pushover(answer(b"", status="500 Oops"))
    raise_alert("instance_down", 7)
    deliver("pushover")
    recover("instance_down", 7)

    deliver("pushover")
    assert len(server.requests) == 1

    wait_less(the_delivery(notice="raised"))
    deliver("pushover")
    assert [fields(each)["priority"] for each in server.requests] == ["1", "1", "-1"]


@apart
def test_a_deaf_channel_holds_up_no_other(pushover: Any, settings: Any) -> None:
    hears_again = threading.Event()
    server = pushover(lambda *wire: (hears_again.wait(posting.SECONDS), OK(*wire)))
    settings.ALERT_EMAILS = ["ops@example.com"]
    raise_alert("instance_down", 7)
    stuck = threading.Thread(target=lambda: (deliver("pushover"), connection.close()))
    stuck.start()
    until(lambda: server.requests)

    assert deliver("email") == 1

    assert [message.to for message in mail.outbox] == [["ops@example.com"]]
    assert the_delivery(channel="pushover").state == "waiting"
    hears_again.set()
    stuck.join()


def until(seen: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 10
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_tells_of_many_at_once_in_one_notice(pushover: Any) -> None:
    server = pushover()
    tenant = make_tenant(name="Loja Azul")
    for number in range(25):
        raise_alert("instance_down", number, tenant_id=tenant.pk, detail={"name": f"wa-{number}"})
    raise_alert("dead_letter", "stream:status", detail={"reason": "no"})

    assert deliver("pushover") == 2

    first = fields(server.requests[0])
    assert first["title"] == "Instância desconectada (25)"
    assert first["message"].splitlines()[0].startswith("Loja Azul: A instância “wa-0” está desconectada.")
    assert first["message"].splitlines()[-1] == "… e mais 20."
    assert set(AlertDelivery.objects.values_list("state", flat=True)) == {"delivered"}


# --- the other channels -----------------------------------------------------------------------------------


def test_signs_what_it_posts_to_a_program(peer: Start, settings: Any) -> None:
    server = peer(OK)
    settings.ALERT_WEBHOOK_URL, settings.ALERT_WEBHOOK_SECRET = f"{server.url}/hook", SECRET
    tenant = make_tenant(slug="loja-azul")
    raise_alert("balance_low", "conta", tenant_id=tenant.pk, detail={"left": 10}, now=NOW)

    deliver("webhook")

    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = [line.decode().split(": ", 1) for line in head.split(b"\r\n")[1:]]
    Verifier(SECRET).verify(body, {name.lower(): value for name, value in lines})
    told = json.loads(body)
    assert {name: told[name] for name in ("event", "kind", "severity")} == {
        "event": "raised",
        "kind": "balance_low",
        "severity": "warning",
    }
    (facts,) = told["alerts"]
    assert (facts["subject"], facts["tenant"], facts["detail"]) == ("conta", "loja-azul", {"left": 10})
    assert facts["raisedAt"] == "2026-11-29T12:00:00Z"


def test_mails_each_address(settings: Any) -> None:
    settings.ALERT_EMAILS = ["ops@example.com", "boss@example.com"]
    tenant = make_tenant(name="Loja\r\nBcc: all@example.com")
    raise_alert("instance_down", 7, tenant_id=tenant.pk, detail={"name": "vendas"})

    assert deliver("email") == 2

    assert [message.to for message in mail.outbox] == [["ops@example.com"], ["boss@example.com"]]
    assert mail.outbox[0].subject == "[Pilot] Instância desconectada · Loja Bcc: all@example.com"
    assert "“vendas” está desconectada" in mail.outbox[0].body


@pytest.mark.parametrize(
    ("failure", "state"),
    [
        (smtplib.SMTPServerDisconnected("gone"), "waiting"),
        (ConnectionRefusedError(), "waiting"),
        (smtplib.SMTPRecipientsRefused({"ops@example.com": (450, b"later")}), "waiting"),
        (smtplib.SMTPRecipientsRefused({"ops@example.com": (550, b"no such user")}), "failed"),
    ],
)
def test_tries_again_when_the_mail_server_may_take_it_later(
    settings: Any, monkeypatch: pytest.MonkeyPatch, failure: Exception, state: str
) -> None:
    def fail(*_args: Any, **_kwargs: Any) -> int:
        raise failure

    settings.ALERT_EMAILS = ["ops@example.com"]
    monkeypatch.setattr("django.core.mail.backends.locmem.EmailBackend.send_messages", fail)
    raise_alert("instance_down", 7)

    deliver("email")

    assert the_delivery().state == state


def test_a_channel_that_was_taken_away_is_given_up_in_time(settings: Any) -> None:
    settings.ALERT_EMAILS = ["ops@example.com"]
    raise_alert("instance_down", 7)
    settings.ALERT_CHANNELS = {}

    deliver("email")

    assert (the_delivery().state, the_delivery().error) == ("waiting", "KeyError")
