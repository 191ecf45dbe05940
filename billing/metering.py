"""Counts accepted messages, in the statement that accepts them."""

from __future__ import annotations

import random
from datetime import date, datetime
from typing import Any

from django.db.models import Sum

from accounts.models import Project, Tenant, zone_of
from billing.models import Usage
from pilot import sql

SLOTS = 8


def counting(source: str) -> str:
    """An INSERT that counts as many messages as `source`, a part of the same statement, has rows.

    Its values are those of counting_values(). Without rows it counts, and writes, nothing.
    """
    return f"""
INSERT INTO billing_usage (tenant_id, project_id, environment, month, slot, accepted)
SELECT %s::bigint, %s::bigint, %s::text, %s::date, %s::smallint, count(*) FROM {source} HAVING count(*) > 0
ON CONFLICT (project_id, environment, month, slot)
DO UPDATE SET accepted = billing_usage.accepted + excluded.accepted"""


def counting_values(*, project: Project, environment: str, now: datetime) -> list[Any]:
    """The values for counting(): a random slot of the project's month, so that no row is hot."""
    month = month_of(project.tenant, now)
    return [project.tenant_id, project.pk, environment, month, random.randrange(SLOTS)]


def add(*, project: Project, environment: str, count: int, now: datetime) -> None:
    """Counts `count` messages that were accepted elsewhere."""
    messages = "(SELECT FROM generate_series(1, %s)) AS messages"
    values = counting_values(project=project, environment=environment, now=now)
    sql.execute(counting(messages), [*values, count])


def accepted(*, tenant: Tenant, environment: str, now: datetime) -> int:
    """Messages that the tenant had accepted in the month of `now`."""
    rows = Usage.objects.filter(tenant=tenant, environment=environment, month=month_of(tenant, now))
    return rows.aggregate(total=Sum("accepted"))["total"] or 0


def month_of(tenant: Tenant, now: datetime) -> date:
    """The first day of the month of `now` on the tenant's calendar."""
    return now.astimezone(zone_of(tenant)).date().replace(day=1)
