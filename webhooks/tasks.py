"""Celery's doors into webhooks: load, one call, answer."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.utils import timezone

from webhooks import listening
from webhooks.sending import shared_sender


@shared_task(name="webhooks.send")
def send(**_kwargs: Any) -> None:
    """A wake-up token: deliveries may be due."""
    shared_sender().wake()


@shared_task(name="webhooks.listen")
def listen(**_kwargs: Any) -> dict[str, int]:
    """Every 5 min: suspects instances whose webhooks are silent. Returns counts."""
    return listening.listen(now=timezone.now())
