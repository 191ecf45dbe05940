"""Statements of the hot path: planned once, others not kept at all."""

from __future__ import annotations

import pytest
from django.db import connection

from accounts.models import Tenant
from pilot import sql

pytestmark = pytest.mark.django_db


def kept() -> list[str]:
    """The statements of which the server keeps the plan for this connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        return [row[0] for row in cursor.fetchall()]


def test_the_server_keeps_the_plan_of_a_hot_statement() -> None:
    assert sql.fetch("SELECT %s::int + 4711", [1]) == [(4712,)]

    assert [statement for statement in kept() if "4711" in statement] == ["SELECT $1::int + 4711"]


def test_the_server_keeps_none_of_djangos_own_statements() -> None:
    for _ in range(10):
        Tenant.objects.filter(slug="nobody").first()

    assert not any("accounts_tenant" in statement for statement in kept())
