"""`manage.py send_test_alert [--tenant SLUG]`: sends an alert through every channel, and says how that went."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import Tenant
from pilot.alerts import raise_alert, recover
from pilot.alerts.delivering import deliver
from pilot.models import AlertDelivery

WITHIN_SECONDS = 30.0


class Command(BaseCommand):
    help = "Sends a test alert to those who run Pilot and, with --tenant, to a tenant's owners and administrators."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", metavar="SLUG", help="tell this tenant's people, too")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = _tenant(options["tenant"]) if options["tenant"] else None
        subject = uuid4().hex
        if not raise_alert("test", subject, tenant_id=tenant.pk if tenant else None):
            raise CommandError("The alert could not be written down; see the log.")
        deliveries = _sent(subject)
        recover("test", subject, silently=True)
        if not deliveries:
            raise CommandError("No channel is configured: see “Alerts” in docs/operating.md.")
        for delivery in deliveries:
            self.stdout.write(_line(delivery))
        if any(delivery.state != AlertDelivery.State.DELIVERED for delivery in deliveries):
            raise CommandError("Not everybody was told.")


def _tenant(slug: str) -> Tenant:
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None:
        raise CommandError(f"There is no tenant {slug!r}.")
    return tenant


def _sent(subject: str) -> list[AlertDelivery]:
    """The deliveries, after an attempt of each: here, or in a worker that was faster."""
    rows = AlertDelivery.objects.filter(alert__kind="test", alert__subject=subject).order_by("pk")
    for channel in sorted(set(rows.values_list("channel", flat=True))):
        deliver(channel)
    until = time.monotonic() + WITHIN_SECONDS
    while rows.filter(state=AlertDelivery.State.WAITING, error="").exists() and time.monotonic() < until:
        time.sleep(0.2)
    return list(rows)


def _line(delivery: AlertDelivery) -> str:
    to = f" to {delivery.recipient}" if delivery.recipient else ""
    result = delivery.error or ("no answer yet" if delivery.state == AlertDelivery.State.WAITING else "ok")
    return f"{delivery.channel}{to}: {result}"
