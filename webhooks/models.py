"""Calls that providers make to us, kept as they came until they are applied."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from instances.models import Instance


class InboundCall(models.Model):
    """One webhook call, stored before anything reads it: a parser's bug can then be replayed."""

    instance = models.ForeignKey(Instance, models.CASCADE, related_name="calls", db_index=False)
    event = models.CharField(_("event"), max_length=60, blank=True)
    body = models.BinaryField()
    received_at = models.DateTimeField(_("received"), db_default=Now())
    applied_at = models.DateTimeField(_("applied"), null=True, blank=True)
    error = models.CharField(_("error"), max_length=500, blank=True)

    class Meta:
        verbose_name = _("inbound call")
        verbose_name_plural = _("inbound calls")
        indexes = [
            models.Index(
                fields=["id"], name="inbound_call_pending", condition=models.Q(applied_at__isnull=True)
            ),
            models.Index(fields=["instance", "-id"], name="inbound_call_list"),
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.received_at:%H:%M:%S}"
