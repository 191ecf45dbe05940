"""Accounts by instance, kept for a few seconds: building one decrypts secrets, and a busy worker asks all the time."""

from __future__ import annotations

import time

from instances.models import Instance
from instances.providers.base import Account

KEPT_SECONDS = 5.0  # how long a changed setting or key may go unnoticed by a running worker
MOST_KEPT = 10_000

_kept: dict[int, tuple[float, Account]] = {}


def account_of(instance_id: int) -> Account:
    """The account of an instance, at most five seconds old. Raises Instance.DoesNotExist."""
    until, account = _kept.get(instance_id, (0.0, None))
    if account is not None and time.monotonic() < until:
        return account
    account = Instance.objects.select_related("server").get(pk=instance_id).account()
    if len(_kept) >= MOST_KEPT:
        _kept.clear()  # all at once: nearly all of them are too old to be used again
    _kept[instance_id] = (time.monotonic() + KEPT_SECONDS, account)
    return account


def forget() -> None:
    """Empties the memory, for whoever just changed an instance and cannot wait."""
    _kept.clear()
