"""Reading queues over the API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.test import Client
from django.utils import timezone

from accounts.models import Project, Scope
from instances.models import InstanceHour
from messaging.models import Purge
from tests.factories import NOW, make_instance, make_key, make_message, make_project

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def raw_key(project: Project) -> str:
    return make_key(project, scopes=[Scope.INSTANCES_READ])[1]


def _get(raw_key: str, **parameters: Any) -> Any:
    return Client().get("/api/queues", parameters, headers={"apikey": raw_key})


def _names(answer: Any) -> list[str]:
    return [queue["instance"] for queue in answer.json()["queues"]]


@time_machine.travel(NOW)
def test_tells_how_a_queue_is(project: Project, raw_key: str) -> None:
    instance = make_instance(project.tenant, name="loja")
    now = timezone.now()
    make_message(instance=instance, created_at=now - timedelta(minutes=5))
    make_message(instance=instance, next_attempt_at=now + timedelta(hours=1))
    InstanceHour.objects.create(instance=instance, hour=NOW, sent=7, failed=2)
    Purge.objects.create(instance=instance, before=now, total=9, cancelled=4, started_at=now)

    (queue,) = _get(raw_key).json()["queues"]

    assert 300 <= queue.pop("oldest_seconds") < 310
    assert queue.pop("sent_by_hour") == [*[0] * 23, 7]
    assert queue.pop("next_send_at").endswith("Z")
    assert queue.pop("empty_at").endswith("Z")
    assert queue == {
        "instance": "loja",
        "status": "open",
        "paused": False,
        "queued": 1,
        "delayed": 1,
        "in_flight": 0,
        "failed": 2,
        "sent_per_hour": 7,
        "breaker_until": None,
        "too_long": False,
        "too_old": False,
        "cancelling": 5,
    }


def test_knows_no_time_for_an_instance_that_does_not_send(project: Project, raw_key: str) -> None:
    make_message(instance=make_instance(project.tenant, paused=True))

    (queue,) = _get(raw_key).json()["queues"]

    assert (queue["next_send_at"], queue["empty_at"]) == (None, None)


def test_pages_by_cursor_through_the_tenants_own(project: Project, raw_key: str) -> None:
    for name in ("b", "a", "c"):
        make_instance(project.tenant, name=name)
    make_instance(project.tenant, name="d", status="removed")
    make_instance(name="alheia")

    first = _get(raw_key, limit=2)
    rest = _get(raw_key, limit=2, cursor=first.json()["next_cursor"])

    assert (_names(first), _names(rest)) == (["a", "b"], ["c"])
    assert rest.json()["next_cursor"] is None


@pytest.mark.parametrize("parameters", [{"limit": 0}, {"limit": 201}, {"cursor": "AAA"}, {"colour": "red"}])
def test_refuses_what_it_does_not_know(raw_key: str, parameters: dict[str, Any]) -> None:
    answer = _get(raw_key, **parameters)

    assert answer.status_code == 400
    assert list(answer.json()["error"]["fields"]) == list(parameters)


def test_asks_for_the_scope(project: Project) -> None:
    raw_key = make_key(project, scopes=[Scope.MESSAGES_READ])[1]

    assert _get(raw_key).status_code == 403
    assert _get("").status_code == 401
