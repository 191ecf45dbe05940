"""The event row: history and outbox at once. What happened is written with the change itself, announced later."""

from __future__ import annotations

from django.db import models


class EventRow(models.Model):
    """One fact about one subject. `position` numbers events in the order the relay announced them."""

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=32)
    detail = models.JSONField(default=dict)
    at = models.DateTimeField()
    position = models.BigIntegerField(null=True, editable=False)

    class Meta:
        abstract = True
