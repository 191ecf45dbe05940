"""Looks after instances that said no: opens the gate of those that are connected again, keeps webhooks configured."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import structlog

from instances import connecting, status
from instances.accounts import account_of
from instances.models import Instance, InstanceStatus
from instances.providers import provider_for
from instances.providers.base import ProviderError
from instances.providers.http import perform

log = structlog.get_logger(__name__)

# An instance that fails while it says that it is open gets a try this often, and no more.
RECHECK_AFTER = timedelta(seconds=30)


def recheck_degraded(*, now: datetime) -> dict[str, int]:
    """Asks the provider about instances that are degraded for a while. Returns how many are in which state."""
    degraded = Instance.objects.select_related("server").filter(
        status=InstanceStatus.DEGRADED, status_changed_at__lte=now - RECHECK_AFTER
    )
    return dict(Counter(_recheck(instance, now) for instance in degraded.iterator()))


def _recheck(instance: Instance, now: datetime) -> str:
    try:
        state = perform(provider_for(instance).state(account_of(instance.pk)))
    except ProviderError as error:
        log.info("instance.recheck_failed", instance=instance.name, code=error.code)
        return "unknown"
    if state == "open":
        status.move(instance_id=instance.pk, to=InstanceStatus.OPEN, at=now, reason="rechecked")
    if state == "closed":
        status.move(instance_id=instance.pk, to=InstanceStatus.CLOSED, at=now, reason="rechecked")
    return state


def keep_hooks(*, now: datetime) -> dict[str, int]:
    """Sets the webhook configuration again where it drifted (Evolution loses it on restarts). Returns counts."""
    present = Instance.objects.select_related("server").filter(
        status__in=[InstanceStatus.OPEN, InstanceStatus.DEGRADED]
    )
    return dict(Counter(_keep_hook(instance) for instance in present.iterator()))


def _keep_hook(instance: Instance) -> str:
    try:
        return "repaired" if connecting.ensure_hook(instance=instance) else "kept"
    except connecting.ConnectingError as error:
        log.info("instance.hook_unknown", instance=instance.name, code=error.code)
        return "unknown"
