"""`manage.py reencrypt_secrets`: puts every stored secret under the newest key of ENCRYPTION_KEYS."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError
from django.db import connection, models, transaction

from pilot.encryption import DecryptionError, EncryptedTextField, reencrypt

Secret = tuple[Any, str]  # a primary key, and what is stored


class Command(BaseCommand):
    help = "Encrypts every stored secret again, with the newest key of ENCRYPTION_KEYS. May run beside everything."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--batch", type=int, default=500, help="rows for each transaction")

    def handle(self, *, batch: int, **_options: Any) -> None:
        unreadable = 0
        for model, field in _encrypted_fields():
            column = Column(model, field, batch=batch)
            column.reencrypt()
            self.stdout.write(f"{column}: {column.done} encrypted again, {column.unreadable} unreadable")
            unreadable += column.unreadable
        if unreadable:
            raise CommandError(f"{unreadable} secrets cannot be read with any key of ENCRYPTION_KEYS.")


def _encrypted_fields() -> Iterator[tuple[type[models.Model], models.Field[Any, Any]]]:
    for model in apps.get_models():
        for field in model._meta.local_concrete_fields:
            if isinstance(field, EncryptedTextField) and not model._meta.proxy:
                yield model, field


class Column:
    """One encrypted column, as it is stored."""

    def __init__(self, model: type[models.Model], field: models.Field[Any, Any], *, batch: int) -> None:
        quote, key = connection.ops.quote_name, model._meta.pk
        assert key is not None
        assert key.column is not None
        assert field.column is not None
        self._names = {
            "table": quote(model._meta.db_table),
            "key": quote(key.column),
            "column": quote(field.column),
        }
        self._label = f"{model._meta.label}.{field.name}"
        self._batch = batch
        self.done = 0
        self.unreadable = 0

    def __str__(self) -> str:
        return self._label

    def reencrypt(self) -> None:
        """Goes through the column in the order of the primary key, a transaction for each batch."""
        secrets = self._read(self._FIRST, [self._batch])
        while secrets:
            renewed = [renewed for secret in secrets if (renewed := self._renew(secret)) is not None]
            self._write(renewed)
            secrets = self._read(self._NEXT, [secrets[-1][0], self._batch])

    _FIRST = "SELECT {key}, {column} FROM {table} WHERE {column} <> '' ORDER BY {key} LIMIT %s"
    _NEXT = "SELECT {key}, {column} FROM {table} WHERE {column} <> '' AND {key} > %s ORDER BY {key} LIMIT %s"
    # Only while it is what was read: somebody may have changed the secret meanwhile.
    _RENEW = "UPDATE {table} SET {column} = %s WHERE {key} = %s AND {column} = %s"

    def _read(self, sql: str, parameters: list[Any]) -> list[Secret]:
        with connection.cursor() as cursor:
            cursor.execute(sql.format(**self._names), parameters)
            return cursor.fetchall()

    def _renew(self, secret: Secret) -> tuple[str, Any, str] | None:
        key, stored = secret
        try:
            return reencrypt(stored), key, stored
        except DecryptionError:
            self.unreadable += 1
            return None

    def _write(self, renewed: list[tuple[str, Any, str]]) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            for row in renewed:
                cursor.execute(self._RENEW.format(**self._names), row)
                self.done += cursor.rowcount
