"""Fields that are encrypted at rest with the keys of ENCRYPTION_KEYS (Fernet, the newest first)."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import models


class DecryptionError(Exception):
    """A stored secret cannot be read with any key of ENCRYPTION_KEYS."""


@cache
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    if not keys:
        raise ImproperlyConfigured("ENCRYPTION_KEYS is not set.")
    try:
        return MultiFernet([Fernet(key) for key in keys])
    except ValueError:
        raise ImproperlyConfigured("ENCRYPTION_KEYS must be url-safe base64 keys of 32 bytes.") from None


def encrypt(plain: str) -> str:
    """The token to store for `plain`, made with the newest key."""
    return _fernet(tuple(settings.ENCRYPTION_KEYS)).encrypt(plain.encode()).decode()


def decrypt(token: str) -> str:
    """The plain text of a stored token. Raises DecryptionError; never hands out the token itself."""
    try:
        return _fernet(tuple(settings.ENCRYPTION_KEYS)).decrypt(token.encode()).decode()
    except InvalidToken:
        raise DecryptionError("A stored secret cannot be decrypted: check ENCRYPTION_KEYS.") from None


def reencrypt(token: str) -> str:
    """The same secret under the newest key. Raises DecryptionError."""
    try:
        return _fernet(tuple(settings.ENCRYPTION_KEYS)).rotate(token.encode()).decode()
    except InvalidToken:
        raise DecryptionError("A stored secret cannot be decrypted: check ENCRYPTION_KEYS.") from None


class EncryptedTextField(models.TextField):  # type: ignore[type-arg]
    """Text that is encrypted in the database and plain in Python. Cannot be filtered on."""

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> str | None:
        return decrypt(value) if value else value

    def get_prep_value(self, value: Any) -> Any:
        return encrypt(str(value)) if value else value

    def get_lookup(self, lookup_name: str) -> Any:
        if lookup_name not in {"isnull", "exact"}:
            return None
        return super().get_lookup(lookup_name)


class EncryptedJSONField(EncryptedTextField):
    """A JSON value that is encrypted in the database."""

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        plain = super().from_db_value(value, expression, connection)
        return json.loads(plain) if plain else {}

    def get_prep_value(self, value: Any) -> Any:
        return super().get_prep_value(json.dumps(value)) if value else ""
