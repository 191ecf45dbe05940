"""Purging: what waits is cancelled, all of it, and nothing else, whoever carries it out."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from instances.models import Instance
from messaging import purging
from messaging.models import Message, MessageEvent, Purge
from messaging.purging import AlreadyPurging, carry_out, order
from messaging.tasks import purge as task
from tests.factories import NOW, make_instance, make_message

pytestmark = pytest.mark.django_db


@pytest.fixture
def instance() -> Instance:
    return make_instance()


def _waits(instance: Instance, count: int = 1, **fields: Any) -> list[Message]:
    return [make_message(instance=instance, **fields) for _number in range(count)]


def _order(instance: Instance) -> Purge:
    return order(instance=instance, before=NOW, now=NOW)


def _statuses(messages: list[Message]) -> set[str]:
    return set(
        Message.objects.filter(pk__in=[message.pk for message in messages]).values_list("status", flat=True)
    )


def test_cancels_all_that_waits_in_batches(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purging, "BATCH", 2)
    waiting = [*_waits(instance, 3), *_waits(instance, 2, next_attempt_at=NOW + timedelta(hours=1))]
    purge = _order(instance)

    assert carry_out(now=NOW) == 5

    assert _statuses(waiting) == {"cancelled"}
    purge.refresh_from_db()
    assert (purge.total, purge.cancelled, purge.finished_at) == (5, 5, NOW)
    assert MessageEvent.objects.filter(kind="cancelled", detail={"why": "purged"}).count() == 5


def test_leaves_what_is_not_meant(instance: Instance) -> None:
    """In flight, decided, of another instance, or accepted after somebody looked."""
    others = [
        *_waits(instance, status="sending"),
        *_waits(instance, status="unconfirmed"),
        *_waits(instance, status="delivered"),
        *_waits(make_instance(instance.tenant)),
        *_waits(instance, created_at=NOW + timedelta(seconds=1)),
    ]
    _order(instance)

    assert carry_out(now=NOW + timedelta(minutes=1)) == 0
    assert "cancelled" not in _statuses(others)
    assert Purge.objects.get().finished_at


def test_orders_once_at_a_time(instance: Instance) -> None:
    _waits(instance)
    _order(instance)

    with pytest.raises(AlreadyPurging):
        _order(instance)

    carry_out(now=NOW)
    assert _order(instance).total == 0


def test_never_means_what_comes_later_than_now(instance: Instance) -> None:
    purge = order(instance=instance, before=NOW + timedelta(days=1), now=NOW)

    assert purge.before == NOW


def test_goes_on_where_another_process_stopped(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purging, "BATCH", 2)
    _waits(instance, 5)
    purge = _order(instance)
    monkeypatch.setattr(purging, "RUN_SECONDS", 0)
    carry_out(now=NOW)
    monkeypatch.setattr(purging, "RUN_SECONDS", 20)

    assert task() == 5

    purge.refresh_from_db()
    assert purge.cancelled == 5


@pytest.mark.django_db(transaction=True)
def test_takes_no_order_that_somebody_holds(instance: Instance) -> None:
    _waits(instance)
    purge = _order(instance)
    done: list[int] = []

    def work() -> None:
        done.append(carry_out(now=NOW))
        connection.close()

    with transaction.atomic():
        Purge.objects.select_for_update().get(pk=purge.pk)
        other = threading.Thread(target=work)
        other.start()
        other.join(timeout=10)

    assert done == [0]
    assert carry_out(now=NOW) == 1
