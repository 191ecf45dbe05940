"""Receipts that are known before they are due: they wait among those that came early (messaging/receiving.py)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from instances.providers.base import Receipt
from messaging.models import ParkedReceipt


def expect(taken_over: Iterable[tuple[int, Receipt]], *, now: datetime) -> None:
    """Parks what is to come of messages that instances handed over; each receipt is news at its own time."""
    ParkedReceipt.objects.bulk_create(
        [
            ParkedReceipt(
                instance_id=instance_id,
                provider_message_id=event.provider_message_id,
                status=event.status,
                at=now + timedelta(seconds=seconds),
                next_look_at=now + timedelta(seconds=seconds),
            )
            for instance_id, receipt in taken_over
            for seconds, event in receipt.to_come
        ],
        ignore_conflicts=True,
    )
