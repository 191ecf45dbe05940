"""Holding an instance's messages back because a person wants it, and letting them go on."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from instances import status
from instances.models import Instance
from pilot.celery import wake_on_commit


def pause(*, instance: Instance, now: datetime) -> bool:
    """Nothing new is sent until `resume`; what is at the provider already goes on. False when it was so already."""
    return _set(instance, paused=True, kind="paused", now=now)


def resume(*, instance: Instance, now: datetime) -> bool:
    """Sends again. False when it was not paused."""
    return _set(instance, paused=False, kind="resumed", now=now)


def _set(instance: Instance, *, paused: bool, kind: str, now: datetime) -> bool:
    with transaction.atomic():
        if not Instance.objects.filter(pk=instance.pk, paused=not paused).update(paused=paused):
            return False
        status.note(instance_id=instance.pk, kind=kind, at=now, detail={})
        if not paused:
            wake_on_commit(instance.pk)
    return True
