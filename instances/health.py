"""Looks after instances that do not send: opens the gate of those that are connected again, keeps webhooks set."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import structlog

from instances import connecting, servers, status
from instances.models import Instance, InstanceStatus
from instances.providers import provider_for
from instances.providers.base import INSTANCE_REMOVED, ProviderError
from instances.providers.http import perform

log = structlog.get_logger(__name__)

# An instance that fails while it says that it is open gets a try this often, and no more.
RECHECK_AFTER = timedelta(seconds=30)
GONE = frozenset({"closed", INSTANCE_REMOVED})


def recheck(*, now: datetime) -> dict[str, int]:
    """Asks the provider about instances that have been degraded or connecting for a while. Returns counts."""
    doubtful = Instance.objects.select_related("server").filter(
        status__in=[InstanceStatus.DEGRADED, InstanceStatus.CONNECTING],
        status_changed_at__lte=now - RECHECK_AFTER,
    )
    return dict(Counter(_recheck(instance, now) for instance in doubtful.iterator()))


def _recheck(instance: Instance, now: datetime) -> str:
    state = _state(instance)
    if state == "open":
        status.move(instance_id=instance.pk, to=InstanceStatus.OPEN, at=now, reason="rechecked")
    if state in GONE and instance.status == InstanceStatus.DEGRADED:
        status.move(instance_id=instance.pk, to=InstanceStatus.CLOSED, at=now, reason=state)
    return state


def _state(instance: Instance) -> str:
    """The provider's word for the connection, once a presence update has shown that it is alive."""
    provider, account = provider_for(instance), instance.account()
    try:
        state = perform(provider.state(account))
        if state == "open":
            perform(provider.presence(account))
    except ProviderError as error:
        log.info("instance.recheck_failed", instance=instance.name, code=error.code)
        return error.code
    return state


def keep_hooks(*, now: datetime) -> dict[str, int]:
    """Sets the webhook configuration again where it drifted (Evolution loses it on restarts). Returns counts."""
    servers.take_from_settings()
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
