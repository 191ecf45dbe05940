"""Celery's door into webhooks."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from webhooks.sending import shared_sender


@shared_task(name="webhooks.send")
def send(**_kwargs: Any) -> None:
    """A wake-up token: deliveries may be due."""
    shared_sender().wake()
