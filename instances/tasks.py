"""Celery's doors into instances: load, one call, answer."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.utils import timezone

from instances import health


@shared_task(name="instances.recheck")
def recheck(**_kwargs: Any) -> dict[str, int]:
    """Every 30 s: opens the gate of instances that are connected again."""
    return health.recheck(now=timezone.now())


@shared_task(name="instances.keep_hooks")
def keep_hooks(**_kwargs: Any) -> dict[str, int]:
    """Every 5 min: repairs webhook configurations that drifted."""
    return health.keep_hooks(now=timezone.now())
