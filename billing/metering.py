"""Counts accepted messages, in the statement that accepts them."""

from __future__ import annotations

import random
from datetime import date, datetime

from django.db.models import Sum

from accounts.models import Project, Tenant, zone_of
from billing.models import Usage
from pilot import sql

SLOTS = 8


def counting(source: str) -> str:
    """An INSERT that counts the rows of `source`, a part of the same statement: one for each accepted message.

    `source` has tenant_id, project_id, environment, month (month_of()) and slot (any_slot()). Without rows it counts,
    and writes, nothing. Rows are locked in the order of their key, so that two statements never wait for each other.
    """
    return f"""
INSERT INTO billing_usage (tenant_id, project_id, environment, month, slot, accepted)
SELECT tenant_id, project_id, environment, month, slot, count(*) FROM {source}
GROUP BY tenant_id, project_id, environment, month, slot ORDER BY project_id, environment, month, slot
ON CONFLICT (project_id, environment, month, slot)
DO UPDATE SET accepted = billing_usage.accepted + excluded.accepted"""


_ADD = counting(
    "(SELECT %s::bigint, %s::bigint, %s::text, %s::date, %s::smallint FROM generate_series(1, %s)) "
    "AS message (tenant_id, project_id, environment, month, slot)"
)


def any_slot() -> int:
    """A random one of a project's month, so that no row is hot."""
    return random.randrange(SLOTS)


def add(*, project: Project, environment: str, count: int, now: datetime) -> None:
    """Counts `count` messages that were accepted elsewhere."""
    month = month_of(project.tenant, now)
    sql.execute(_ADD, [project.tenant_id, project.pk, environment, month, any_slot(), count])


def accepted(*, tenant: Tenant, environment: str, now: datetime) -> int:
    """Messages that the tenant had accepted in the month of `now`."""
    rows = Usage.objects.filter(tenant=tenant, environment=environment, month=month_of(tenant, now))
    return rows.aggregate(total=Sum("accepted"))["total"] or 0


def accepted_of(*, project_id: int, environment: str, month: date) -> int:
    """Messages that a project had accepted in the month that begins on `month`."""
    rows = Usage.objects.filter(project_id=project_id, environment=environment, month=month)
    return rows.aggregate(total=Sum("accepted"))["total"] or 0


def month_of(tenant: Tenant, now: datetime) -> date:
    """The first day of the month of `now` on the tenant's calendar."""
    return now.astimezone(zone_of(tenant)).date().replace(day=1)
