"""Why a message has not gone out yet."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import translation

from instances.models import Instance, InstanceStatus, Lane
from messaging.models import Message, Status
from messaging.waiting import explain
from tests.factories import NOW

LATER = NOW + timedelta(seconds=20)


def why(
    *,
    message: dict[str, Any] | None = None,
    instance: dict[str, Any] | None = None,
    lane: dict[str, Any] | None = None,
) -> str:
    """The sentence for a queued message on an open, free instance, but for what is given."""
    with translation.override("en"):
        return explain(
            Message(**{"status": Status.QUEUED, "deliver_until": NOW + timedelta(hours=1)} | (message or {})),
            instance=Instance(**{"status": InstanceStatus.OPEN} | (instance or {})),
            lane=Lane(**{"next_send_at": NOW} | (lane or {})),
            now=NOW,
        )


def test_says_that_it_is_next() -> None:
    assert why() == "It is next to be sent."


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"instance": {"status": InstanceStatus.CLOSED}}, "disconnected"),
        ({"instance": {"status": InstanceStatus.CONNECTING}}, "connecting"),
        ({"instance": {"status": InstanceStatus.CREATED}}, "QR code"),
        ({"instance": {"status": InstanceStatus.DEGRADED}}, "not delivering"),
        ({"instance": {"status": InstanceStatus.REMOVED}}, "removed"),
        ({"instance": {"paused": True}}, "paused"),
        ({"lane": {"next_send_at": LATER}}, "one message every 30–46 s"),
        ({"lane": {"in_flight": 1}}, "its turn"),
        ({"lane": {"in_flight": 1}, "instance": {"pace_most_seconds": 0}}, "its turn on the instance"),
        ({"message": {"next_attempt_at": LATER}}, "scheduled"),
        ({"message": {"next_attempt_at": LATER, "attempts": 2}}, "Attempt 2"),
        ({"message": {"deliver_until": NOW}}, "deadline"),
        ({"message": {"status": Status.SENDING}}, "handed to the provider"),
        ({"message": {"status": Status.UNCONFIRMED}}, "did not say"),
        ({"message": {"status": Status.SUBMITTED}}, "WhatsApp has not confirmed"),
    ],
)
def test_names_what_it_waits_for(given: dict[str, Any], part: str) -> None:
    assert part in why(**given)


@pytest.mark.parametrize(
    "status",
    [Status.SENT, Status.DELIVERED, Status.READ, Status.PLAYED, Status.FAILED, Status.CANCELLED],
)
def test_has_nothing_to_explain_once_it_is_settled(status: str) -> None:
    assert why(message={"status": status}) == ""


def test_names_the_disconnection_before_the_pace() -> None:
    sentence = why(instance={"status": InstanceStatus.CLOSED}, lane={"next_send_at": LATER})
    assert "disconnected" in sentence
