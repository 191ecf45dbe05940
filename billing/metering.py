"""Counts accepted messages, in the transaction that accepts them."""

from __future__ import annotations

import random
from datetime import date, datetime
from zoneinfo import ZoneInfo

from django.db import connection
from django.db.models import Sum

from accounts.models import Project, Tenant
from billing.models import Usage

SLOTS = 8

_ADD = """
INSERT INTO billing_usage (tenant_id, project_id, environment, month, slot, accepted)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (project_id, environment, month, slot) DO UPDATE SET accepted = billing_usage.accepted + excluded.accepted
"""


def add(*, project: Project, environment: str, count: int, now: datetime) -> None:
    """Adds `count` accepted messages. Must run inside the transaction that inserts them."""
    month = month_of(project.tenant, now)
    with connection.cursor() as cursor:
        cursor.execute(
            _ADD, [project.tenant_id, project.pk, environment, month, random.randrange(SLOTS), count]
        )


def accepted(*, tenant: Tenant, environment: str, now: datetime) -> int:
    """Messages that the tenant had accepted in the month of `now`."""
    rows = Usage.objects.filter(tenant=tenant, environment=environment, month=month_of(tenant, now))
    return rows.aggregate(total=Sum("accepted"))["total"] or 0


def month_of(tenant: Tenant, now: datetime) -> date:
    """The first day of the month of `now` on the tenant's calendar."""
    return now.astimezone(ZoneInfo(tenant.time_zone)).date().replace(day=1)
