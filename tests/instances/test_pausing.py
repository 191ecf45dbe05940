"""Holding an instance back and letting it go on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from instances import pausing
from tests.factories import make_instance

pytestmark = pytest.mark.django_db


def test_wakes_an_instance_when_it_is_resumed_and_not_before(
    now: datetime, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    woken: list[int] = []
    monkeypatch.setattr("pilot.celery.wake_all", woken.extend)
    instance = make_instance()

    with django_capture_on_commit_callbacks(execute=True):
        assert pausing.pause(instance=instance, now=now)
    assert woken == []

    with django_capture_on_commit_callbacks(execute=True):
        assert pausing.resume(instance=instance, now=now)
        assert not pausing.resume(instance=instance, now=now)
        assert woken == []

    assert woken == [instance.pk]
