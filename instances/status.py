"""An instance's states, who may become what, and `move()`: the only writer of `Instance.status`.

    created ──► connecting ◄──► open ◄──► degraded
       │            │ ▲           │           │        closed is a number that must be paired again, or a server
       │            ▼ │           ▼           │        that lost it; degraded one that says it is open and does
       └─────────► closed ◄───────┴───────────┘        not deliver; removed is the end.

A change is a compare-and-set under the row's lock, and its InstanceEvent is written in the same transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from accounts import events
from instances import outages
from instances.models import Instance, InstanceEvent, InstanceStatus
from pilot.celery import queues_changed, wake_on_commit

CREATED, CONNECTING, OPEN = InstanceStatus.CREATED, InstanceStatus.CONNECTING, InstanceStatus.OPEN
DEGRADED, CLOSED, REMOVED = InstanceStatus.DEGRADED, InstanceStatus.CLOSED, InstanceStatus.REMOVED

TABLE: Mapping[str, frozenset[str]] = {
    CREATED: frozenset({CONNECTING, OPEN, CLOSED, REMOVED}),
    CONNECTING: frozenset({OPEN, CLOSED, REMOVED}),
    OPEN: frozenset({CONNECTING, DEGRADED, CLOSED, REMOVED}),
    DEGRADED: frozenset({CONNECTING, OPEN, CLOSED, REMOVED}),
    CLOSED: frozenset({CONNECTING, OPEN, REMOVED}),
    REMOVED: frozenset(),
}


# What the tenant's own programs hear of a change.
NEWS: Mapping[str, str] = {
    OPEN: "instance.connected",
    DEGRADED: "instance.degraded",
    CLOSED: "instance.disconnected",
    REMOVED: "instance.disconnected",
}


def move(
    *,
    instance_id: int,
    to: str,
    at: datetime,
    reason: str = "",
    only_from: Collection[str] | None = None,
    unless_changed_after: datetime | None = None,
    detail: Mapping[str, Any] | None = None,
) -> bool:
    """Makes the instance `to`, in one transaction with the event. False when it is so already or may not become so.

    `only_from` narrows the table for news that must not undo a better state; `unless_changed_after` is for news that
    is as old as that moment, and of a connection that may be another by now. Workers hear of it after the commit.
    """
    with transaction.atomic():
        rows = Instance.objects.filter(pk=instance_id)
        # Not against the foreign keys of messages that are being accepted: this may be a part of a long transaction.
        instance = rows.select_for_update(no_key=True).only(*_READ).get()
        old, since = instance.status, instance.status_changed_at
        if to not in TABLE[old] or (only_from is not None and old not in only_from):
            return False
        if unless_changed_after is not None and since > unless_changed_after:
            return False
        rows.update(status=to, status_reason=reason[:200], status_changed_at=at)
        _tell(instance, to=to, at=at, reason=reason)
        note(
            instance_id=instance_id, kind=to, at=at, detail={"from": old, "reason": reason, **(detail or {})}
        )
        if to in (CLOSED, DEGRADED):
            connected = old in outages.CONNECTED
            outages.lost(instance_id=instance_id, to=to, reason=reason, at=at, was_connected=connected)
        if to == REMOVED:
            outages.cancel(instance_id=instance_id, at=at)
        transaction.on_commit(queues_changed, robust=True)
        if to == OPEN:
            wake_on_commit(instance_id)
    return True


_READ = ("tenant_id", "name", "number", "status", "status_changed_at")


def _tell(instance: Instance, *, to: str, at: datetime, reason: str) -> None:
    """Lets the tenant's programs know. Leaving `closed` for `removed` is no news: it had no connection before."""
    if to not in NEWS or NEWS[to] == NEWS.get(instance.status):
        return
    data = {"instance": instance.name, "number": instance.number, "status": to, "reason": reason[:200]}
    events.record(
        tenant_id=instance.tenant_id, kind=NEWS[to], data=data, at=at, subject=f"instance:{instance.pk}"
    )


def note(*, instance_id: int, kind: str, at: datetime, detail: Mapping[str, Any]) -> None:
    """A line in the instance's history that is not a change of status. Empty details are left out."""
    filled = {name: value for name, value in detail.items() if value not in ("", None)}
    InstanceEvent.objects.create(instance_id=instance_id, kind=kind, at=at, detail=filled)
