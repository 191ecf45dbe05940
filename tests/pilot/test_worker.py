"""Which queues a worker consumes."""

from __future__ import annotations

import logging

import pytest

from instances.models import InstanceStatus
from pilot import worker
from pilot.celery import app
from pilot.queues import SHARED_QUEUES, queue_for
from tests.factories import make_instance

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("status", InstanceStatus.values)
def test_consumes_the_queues_of_instances_that_may_send(status: str) -> None:
    instance = make_instance(status=status)

    consumed = queue_for(instance.pk) in worker.own_queues()

    assert consumed is (status in {"open", "degraded"})


def test_keeps_the_queue_of_an_instance_that_is_paused() -> None:
    """So that it goes on at once when it is resumed; until then its gate holds what is woken."""
    instance = make_instance(paused=True)

    assert queue_for(instance.pk) in worker.own_queues()


def test_always_consumes_the_fixed_and_the_shared_queues_and_its_own() -> None:
    assert worker.base_queues("w1") == {*worker.FIXED_QUEUES, *SHARED_QUEUES, "hb.w1"}


def test_consumes_every_queue_that_beat_fills() -> None:
    filled = {entry["options"]["queue"] for entry in app.conf.beat_schedule.values()}

    assert filled <= set(worker.FIXED_QUEUES)


def test_what_waits_for_providers_is_in_nobodys_way() -> None:
    """The pulse and the deadlines never stand behind a check of instances."""
    queues: dict[str, set[str]] = {}
    for entry in app.conf.beat_schedule.values():
        queues.setdefault(entry["options"]["queue"], set()).add(entry["task"])

    hasty = {"messaging.pulse", "messaging.reconcile_deadlines", "messaging.resolve_unconfirmed"}
    assert hasty.isdisjoint(queues["health"])


def test_logs_at_the_level_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """`celery worker` without -l would say nothing below a warning."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "level", logging.INFO)
    monkeypatch.setattr(app.log, "already_setup", False)

    app.log.setup_logging_subsystem(loglevel="WARNING")

    assert root.level == logging.INFO
