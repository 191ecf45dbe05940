"""Each tenant's simulator: the instance that messages to magic numbers go out from, which reaches nobody."""

from __future__ import annotations

import secrets
from contextlib import suppress
from datetime import datetime

from accounts.models import Tenant
from instances import linking
from instances.connecting import NameTakenError
from instances.models import Instance, InstanceStatus, Provider

NAME = "simulator"
IN_FLIGHT = 50


def ensure(tenant: Tenant, *, now: datetime) -> None:
    """Makes the tenant's simulator unless there is one. Under another name where an instance of theirs has it."""
    for name in (NAME, f"{NAME}-{secrets.token_hex(4)}"):
        if _present(tenant):
            return
        values = {"provider": Provider.SIMULATOR, "concurrency": IN_FLIGHT}
        with suppress(NameTakenError):  # by such an instance, or by another request that makes the simulator
            linking.insert(tenant=tenant, name=name, app=None, values=values, now=now)


def _present(tenant: Tenant) -> bool:
    simulators = Instance.objects.filter(tenant=tenant, provider=Provider.SIMULATOR)
    return simulators.exclude(status=InstanceStatus.REMOVED).exists()
