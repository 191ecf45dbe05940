"""Celery's doors into messaging: load, one call, answer."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.utils import timezone

from messaging import acknowledging, pulse, purging, reconciling, validating, watching
from pilot import queues


@shared_task(name="messaging.drain_instance")
def drain_instance(*, instance_id: int, **_kwargs: Any) -> None:
    """A wake-up token: this instance may have due work."""
    pulse.drain(instance_id)


@shared_task(name="messaging.drain_shard")
def drain_shard(*, shard: int, **_kwargs: Any) -> None:
    """A wake-up token of a shared queue: the instances that wait in its shard may have due work."""
    pulse.drain(*queues.take(shard))


@shared_task(name="messaging.pulse")
def beat(**_kwargs: Any) -> int:
    """Every second: promotes what became due and wakes the instances that are free. Returns how many it woke."""
    return pulse.beat(now=timezone.now())


@shared_task(name="messaging.reconcile_deadlines")
def reconcile_deadlines(**_kwargs: Any) -> dict[str, int]:
    """Every 30 s: expires what is past its deadline, and more that time decides. Returns counts."""
    return reconciling.reconcile_deadlines(now=timezone.now())


@shared_task(name="messaging.resolve_unconfirmed")
def resolve_unconfirmed(**_kwargs: Any) -> dict[str, int]:
    """Every 5 s: ends leases that ran out and asks about messages whose answer was lost. Returns counts."""
    return reconciling.resolve_unconfirmed(now=timezone.now())


@shared_task(name="messaging.ask_for_receipts")
def ask_for_receipts(**_kwargs: Any) -> dict[str, int]:
    """Every 15 s: asks providers about messages whose receipt is overdue. Returns counts."""
    return acknowledging.ask(now=timezone.now())


@shared_task(name="messaging.watch")
def watch(**_kwargs: Any) -> dict[str, int]:
    """Every minute: alerts of what goes wrong while nobody looks, and of its end. Returns counts."""
    return watching.watch(now=timezone.now())


@shared_task(name="messaging.purge")
def purge(**_kwargs: Any) -> int:
    """Every 5 s: goes on with cancelling what was ordered to be. Returns how many messages."""
    return purging.carry_out(now=timezone.now())


@shared_task(name="messaging.validate")
def validate(**_kwargs: Any) -> dict[str, int]:
    """Every 5 min: asks about open instances, and suspects those that do not deliver. Returns counts."""
    return validating.validate(now=timezone.now())
