"""Health means progress."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from pilot import health
from pilot.models import Heartbeat
from pilot.tasks import heartbeat

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
