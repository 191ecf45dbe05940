"""Statements of the hot path, run with a plan that the server keeps.

Django binds values on the client, so the server parses and plans each statement anew; for the larger ones that costs
more than running them. Here they are prepared once for each connection. A partial index's predicate must stand in the
statement as a literal: a plan made for a parameter cannot use the index.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import psycopg
from django.db import connection
from django.db.models import Model


def fetch(statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
    """The rows that a statement gives. Raises Django's database errors."""
    with _cursor() as cursor, connection.wrap_database_errors:
        return cursor.execute(statement, values, prepare=True).fetchall()


def execute(statement: str, values: Sequence[Any] = ()) -> int:
    """Runs a statement that gives no rows. Returns how many it touched. Raises Django's database errors."""
    with _cursor() as cursor, connection.wrap_database_errors:
        return cursor.execute(statement, values, prepare=True).rowcount


def transposed(rows: Collection[Sequence[Any]]) -> list[list[Any]]:
    """The values of unnest(): a list for each column of the rows, of which there must be one."""
    return [list(column) for column in zip(*rows, strict=True)]


def columns(model: type[Model], *wanted: str) -> list[str]:
    """Column names of a model, all or those wanted, in the order in which Model.from_db() takes their values."""
    names = [field.column for field in model._meta.concrete_fields if field.column]
    return [name for name in names if not wanted or name in wanted]


def _cursor() -> psycopg.Cursor[tuple[Any, ...]]:
    """A cursor that binds on the server, on Django's own connection and so in its transaction."""
    connection.ensure_connection()
    return psycopg.Cursor(connection.connection)
