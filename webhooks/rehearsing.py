"""Webhooks that fail on purpose: those about TEST messages to the magic number for it (docs/sandbox.md)."""

from __future__ import annotations

from accounts.models import Environment
from instances.providers.simulator import SCENARIOS
from pilot.outbound import Answer
from webhooks.claiming import Claim


def failure(claim: Claim) -> Answer | None:
    """What the endpoint "answers" to this attempt, without being called; None when it is to be called."""
    event = claim.delivery.event
    if event.environment != Environment.TEST or not event.type.startswith("message."):
        return None
    scenario = SCENARIOS.get(event.data.get("to", ""))
    if scenario is None or claim.delivery.attempts > scenario.webhooks_fail:
        return None
    return Answer(status=500, headers={}, body=b"Simulated: the endpoint was not called.", seconds=0.0)
