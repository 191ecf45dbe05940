"""Health means progress."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from django.utils import timezone
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from accounts.models import User
from messaging.announcing import STREAM
from messaging.models import MessageEvent
from pilot import health, outbox, reporting
from pilot.alerts import raise_alert
from pilot.models import Heartbeat, StreamPlace
from pilot.redis import connect
from pilot.tasks import heartbeat
from tests.factories import make_message
from tests.members import signed_in
from webhooks.models import InboundCall

pytestmark = pytest.mark.django_db


def everybody() -> None:
    for kind in health.STALE:
        health.beat(name=f"{kind}@here", kind=kind)


def test_is_well_when_each_kind_of_process_moves(client: Client) -> None:
    everybody()

    answer = client.get("/health")

    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    assert {process["kind"] for process in answer.json()["processes"]} == {"worker", "beat", "consume"}


@pytest.mark.parametrize("kind", list(health.STALE))
def test_a_process_that_lives_and_does_not_move_is_reported(client: Client, kind: str) -> None:
    everybody()
    Heartbeat.objects.filter(kind=kind).update(
        progressed_at=timezone.now() - health.STALE[kind] - timedelta(seconds=1)
    )

    answer = client.get("/health")

    assert (answer.status_code, answer.json()["missing"]) == (503, [kind])


def test_one_moving_worker_is_enough() -> None:
    everybody()
    Heartbeat.objects.create(
        name="worker@gone", kind="worker", progressed_at=timezone.now() - timedelta(hours=1)
    )

    report = health.report(now=timezone.now())

    assert report["status"] == "ok"
    assert {process["name"]: process["status"] for process in report["processes"]}["worker@gone"] == "stale"


def test_a_workers_token_proves_that_it_consumes() -> None:
    heartbeat(name="w1@pilot", detail={"queues": 4})

    row = Heartbeat.objects.get(name="w1@pilot")
    assert (row.kind, row.detail) == ("worker", {"queues": 4})


def test_alive_without_a_look_at_anything(client: Client, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert client.get("/livez").status_code == 200


def test_ready_with_every_migration(client: Client) -> None:
    assert client.get("/readyz").json() == {"status": "ok"}


def test_a_loop_of_the_consumers_that_stands_still_is_reported(client: Client) -> None:
    everybody()
    for loop in ("relay", "inbound"):
        health.beat(name=f"consume.{loop}@here", kind="consume")
    old = timezone.now() - timedelta(minutes=1)
    Heartbeat.objects.filter(name="consume.relay@here").update(progressed_at=old)

    assert health.report(now=timezone.now())["missing"] == ["consume.relay"]

    health.beat(name="consume.relay@there", kind="consume")
    assert health.report(now=timezone.now())["missing"] == []


def test_is_not_ready_without_every_migration(client: Client) -> None:
    MigrationRecorder.Migration.objects.filter(app="pilot", name="0001_initial").delete()

    answer = client.get("/readyz")

    assert (answer.status_code, answer.json()["reason"]) == (503, "migrations")


def test_tells_ready_without_reading_the_disk_again(
    client: Client, django_assert_max_num_queries: Any
) -> None:
    client.get("/readyz")

    with django_assert_max_num_queries(2):
        client.get("/readyz")


# --- what /health tells beside ---


def test_tells_of_queues_events_alerts_and_inbound_calls(client: Client) -> None:
    everybody()
    message = make_message(created_at=timezone.now() - timedelta(minutes=5))
    make_message(instance=message.instance, next_attempt_at=timezone.now())
    MessageEvent.objects.create(message=message, tenant=message.tenant, kind="queued", at=timezone.now())
    outbox.number(MessageEvent)
    StreamPlace.objects.create(name="messaging.messageevent.tallied", position=0)
    raise_alert("queue_too_long", "7", now=timezone.now())
    InboundCall.objects.create(instance=message.instance, body=b"{}")

    body = client.get("/health").json()

    queues = body["queues"]
    assert (queues["ready"], queues["delayed"], queues["in_flight"]) == (1, 1, 0)
    assert 300 <= queues["oldest_seconds"] <= 310
    assert [queue["name"] for queue in queues["worst"]] == [message.instance.name]
    assert body["events"]["messaging.messageevent"] == {"numbered": 1, "behind_tallied": 1}
    assert [alert["kind"] for alert in body["alerts"]] == ["queue_too_long"]
    assert body["inbound"]["pending"] == 1


def test_tells_what_groups_of_a_stream_have_not_done(client: Client) -> None:
    redis = connect(timeout=5)
    redis.delete(STREAM)
    redis.xgroup_create(STREAM, "readers", mkstream=True)
    for number in range(3):
        redis.xadd(STREAM, {"payload": str(number)})
    redis.xreadgroup("readers", "one", {STREAM: ">"}, count=2)

    stream = client.get("/health").json()["streams"][STREAM]

    redis.delete(STREAM)
    assert stream["length"] == 3
    group = stream["groups"]["readers"]
    assert (group["lag"], group["pending"]) == (1, 2)
    assert 0 <= group["oldest_pending_seconds"] < 60


def test_reports_without_redis(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    everybody()
    monkeypatch.setattr(reporting, "client", lambda: Redis(port=9, retry=Retry(NoBackoff(), 0)))

    answer = client.get("/health")

    assert (answer.status_code, answer.json()["streams"]) == (200, {})


# --- who may see it ---

PATHS = ("/health", "/metrics")


@pytest.mark.parametrize("path", PATHS)
def test_is_for_operators_only(client: Client, path: str) -> None:
    everybody()

    answer = client.get(path, REMOTE_ADDR="203.0.113.7")

    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "unauthenticated"
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("token", "status"), [("right", 200), ("wrong", 401), ("", 401), ("não", 401)])
def test_takes_the_token(client: Client, settings: Any, path: str, token: str, status: int) -> None:
    everybody()
    settings.OPS_TOKEN = "right"

    headers = {"authorization": f"Bearer {token}"}
    assert client.get(path, REMOTE_ADDR="203.0.113.7", headers=headers).status_code == status


def test_takes_no_empty_token_for_the_one_that_is_not_set(client: Client) -> None:
    headers = {"authorization": "Bearer "}

    assert client.get("/health", REMOTE_ADDR="203.0.113.7", headers=headers).status_code == 401


@pytest.mark.parametrize(("staff", "status"), [(True, 200), (False, 401)])
def test_lets_in_support_staff(staff: bool, status: int) -> None:
    everybody()
    browser = signed_in(User.objects.create(email="ops@example.com", is_staff=staff))

    assert browser.get("/health", REMOTE_ADDR="203.0.113.7").status_code == status


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip"])
def test_does_not_take_a_proxy_for_a_neighbour(client: Client, header: str) -> None:
    """Whoever a proxy on this machine lets in seems to call from here."""
    assert client.get("/health", headers={header: "127.0.0.1"}).status_code == 401


def test_takes_the_networks_that_are_set(client: Client, settings: Any) -> None:
    everybody()
    settings.OPS_NETWORKS = (ip_network("10.0.0.0/8"),)

    assert client.get("/health", REMOTE_ADDR="10.1.2.3").status_code == 200
    assert client.get("/health", REMOTE_ADDR="127.0.0.1").status_code == 401
    assert client.get("/health", REMOTE_ADDR="").status_code == 401
