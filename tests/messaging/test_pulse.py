"""Whom the pulse wakes, of those who have due work."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from instances.models import Lane
from messaging import pulse
from tests.factories import NOW, make_instance, make_message

pytestmark = pytest.mark.django_db

PACED = {"pace_least_seconds": 30, "pace_most_seconds": 46}


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of instances that were woken, in order."""
    ids: list[int] = []

    def wake(instance_ids: Sequence[int]) -> int:
        ids.extend(instance_ids)
        return len(instance_ids)

    monkeypatch.setattr(pulse, "wake_in_shards", wake)
    return ids


def lane_of(next_send_at: Any, **fields: Any) -> int:
    """An instance with a due message, of which the next may go at that time."""
    message = make_message(instance=make_instance(**fields))
    Lane.objects.filter(pk=message.instance_id).update(next_send_at=next_send_at, next_urgent_at=next_send_at)
    return message.instance_id


def test_wakes_a_paced_instance_as_soon_as_its_pace_allows(woken: list[int]) -> None:
    due, early = lane_of(NOW, **PACED), lane_of(NOW + timedelta(seconds=1), **PACED)

    pulse.beat(now=NOW)

    assert woken == [due]
    assert early not in woken


@pytest.mark.parametrize("fields", [{}, PACED | {"messages_per_second": 80}], ids=["no pace", "a rate"])
def test_leaves_an_instance_alone_that_somebody_serves(woken: list[int], fields: dict[str, Any]) -> None:
    instance = lane_of(NOW - timedelta(milliseconds=500), **fields)

    pulse.beat(now=NOW)
    served = list(woken)
    pulse.beat(now=NOW + timedelta(milliseconds=500))

    assert (served, woken) == ([], [instance])
