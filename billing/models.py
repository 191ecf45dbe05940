"""What a tenant used. Limits and plans read these counters."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from accounts.models import Environment, Project, Tenant


class Usage(models.Model):
    """Messages accepted for one project in one month of the tenant's time zone.

    Spread over `slot` rows so that a busy project does not serialise on one row lock; the sum is the figure.
    """

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="usage")
    project = models.ForeignKey(Project, models.CASCADE, related_name="usage")
    environment = models.CharField(_("environment"), max_length=4, choices=Environment.choices)
    month = models.DateField(_("month"))
    slot = models.SmallIntegerField(_("slot"))
    accepted = models.BigIntegerField(_("accepted"), default=0)

    class Meta:
        verbose_name = _("usage")
        verbose_name_plural = _("usage")
        constraints = [
            models.UniqueConstraint("project", "environment", "month", "slot", name="usage_slot_unique")
        ]

    def __str__(self) -> str:
        return f"{self.project} {self.month:%Y-%m} #{self.slot}"
