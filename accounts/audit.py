"""The audit log: who changed what. Doors record, because they know who asks; domain code does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import structlog
from django.db.models import Model

from accounts.models import Action, ApiKey, AuditEntry, Tenant, User
from pilot.logs import SECRET_NAMES

Actor = User | ApiKey | Literal["system"]


def record(
    *,
    tenant: Tenant | None,
    actor: Actor,
    action: str,
    target: Model,
    detail: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """Writes down that `actor` did `action` to `target`. To be called in the transaction of the change, if it has one.

    `tenant` is None for what concerns Pilot itself. `detail` is JSON; what its names call a secret is not kept.
    Raises ValueError for an action that accounts.models.Action does not list.
    """
    return AuditEntry.objects.create(
        tenant=tenant,
        user=actor if isinstance(actor, User) else None,
        key=actor if isinstance(actor, ApiKey) else None,
        actor=_name(actor)[:120],
        action=Action(action),
        target_kind=str(target._meta.model_name),
        target_id=str(target.pk),
        target_name=str(target)[:120],
        detail=_without_secrets(detail or {}),
        request_id=structlog.contextvars.get_contextvars().get("request_id", ""),
    )


def _name(actor: Actor) -> str:
    if isinstance(actor, User):
        return actor.email
    return f"{actor.prefix}…" if isinstance(actor, ApiKey) else actor


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: "***" if SECRET_NAMES.search(str(name)) else _without_secrets(one)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(one) for one in value]
    return value
