"""Celery's doors into instances: load, one call, answer."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.utils import timezone

from instances import following, health, media, meta_templates


@shared_task(name="instances.recheck")
def recheck(**_kwargs: Any) -> dict[str, int]:
    """Every 30 s: opens the gate of instances that are connected again."""
    return health.recheck(now=timezone.now())


@shared_task(name="instances.keep_hooks")
def keep_hooks(**_kwargs: Any) -> dict[str, int]:
    """Every 5 min: repairs webhook configurations that drifted."""
    return health.keep_hooks(now=timezone.now())


@shared_task(name="instances.fetch_templates")
def fetch_templates(**_kwargs: Any) -> dict[str, int]:
    """Every 5 min: fetches Meta's templates of numbers whose last fetch is an hour ago."""
    return meta_templates.fetch_due(now=timezone.now())


@shared_task(name="instances.forget_media")
def forget_media(**_kwargs: Any) -> int:
    """Daily: forgets uploaded files that their provider no longer has."""
    return media.forget_expired(now=timezone.now())


@shared_task(name="instances.check")
def check(**_kwargs: Any) -> dict[str, int]:
    """Every 10 min, phase 1 of the health check: asks about every instance that should be open."""
    return health.check(now=timezone.now())


@shared_task(name="instances.follow")
def follow(**_kwargs: Any) -> dict[str, int]:
    """Every 15 s, phases 2 and 3: restarts what is down, asks again later, and alerts."""
    return following.follow(now=timezone.now())
