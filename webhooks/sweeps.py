"""What the full reconciler does about providers' calls: those that have waited for long are applied here and now."""

from __future__ import annotations

from datetime import datetime

from pilot.maintenance import Batches, Step
from pilot.reconciling import SETTLES_WITHIN
from webhooks import applying


def apply_calls(now: datetime) -> Batches:
    """Applies stored calls for as long as the oldest is older than the consumer ever lets one become."""
    while applying.oldest_is_from_before(now - SETTLES_WITHIN):
        applied = applying.apply_pending(now=now)
        yield {"calls_applied": applied}
        if not applied:
            return


SWEEPS = (Step("calls", apply_calls),)
