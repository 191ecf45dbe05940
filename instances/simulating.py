"""Each tenant's simulator: the instance that messages to magic numbers go out from, which reaches nobody."""

from __future__ import annotations

import secrets
from datetime import datetime

from accounts.models import Tenant
from instances import linking
from instances.connecting import NameTakenError
from instances.models import Instance, InstanceStatus, Provider

NAME = "simulator"
IN_FLIGHT = 50


def ensure(tenant: Tenant, *, now: datetime) -> None:
    """Makes the tenant's simulator unless there is one. Two at once make one."""
    if _present(tenant):
        return
    values = {"provider": Provider.SIMULATOR, "concurrency": IN_FLIGHT}
    try:
        linking.insert(tenant=tenant, name=NAME, app=None, values=values, now=now)
    except NameTakenError:
        if not _present(tenant):  # an instance of their own has that name
            name = f"{NAME}-{secrets.token_hex(4)}"
            linking.insert(tenant=tenant, name=name, app=None, values=values, now=now)


def _present(tenant: Tenant) -> bool:
    simulators = Instance.objects.filter(tenant=tenant, provider=Provider.SIMULATOR)
    return simulators.exclude(status=InstanceStatus.REMOVED).exists()
