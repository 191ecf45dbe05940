"""Rows about the running processes themselves."""

from __future__ import annotations

from django.db import models


class Heartbeat(models.Model):
    """The last time that a process did real work, not merely lived. See pilot/health.py."""

    name = models.CharField(max_length=120, primary_key=True)
    kind = models.CharField(max_length=20)
    progressed_at = models.DateTimeField()
    detail = models.JSONField(default=dict)

    def __str__(self) -> str:
        return self.name


class StreamPlace(models.Model):
    """How far a reader (or the relay that numbers events) has got. In the database, because streams may vanish."""

    name = models.CharField(max_length=60, primary_key=True)
    position = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name} at {self.position}"


class Lease(models.Model):
    """Who does a piece of work now, and until when at most. See pilot/leases.py."""

    name = models.CharField(max_length=60, primary_key=True)
    token = models.UUIDField()
    until = models.DateTimeField()

    def __str__(self) -> str:
        return self.name
