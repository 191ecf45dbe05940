"""Readers for environment variables: a wrong value refuses to start, and says which variable is wrong."""

from __future__ import annotations

import os
import re
from base64 import b64decode
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

TRUE = {"1", "true", "yes", "on"}
FALSE = {"0", "false", "no", "off"}
E164 = re.compile(r"\+[1-9][0-9]{6,14}")
SHORTEST_KEY = 24  # bytes, as Standard Webhooks asks


class _Required:
    """Marks a variable that has no default."""


REQUIRED = _Required()


def text(name: str, default: str | _Required = REQUIRED) -> str:
    """The variable as a string; also read from the file named by `<name>_FILE` (container secrets)."""
    if path := os.environ.get(f"{name}_FILE"):
        return _file(name, path)
    if value := os.environ.get(name, "").strip():
        return value
    if isinstance(default, _Required):
        raise ImproperlyConfigured(f"{name} is not set.")
    return default


def boolean(name: str, default: bool) -> bool:
    """True for 1/true/yes/on, False for 0/false/no/off; anything else is refused."""
    value = text(name, "").lower()
    if not value:
        return default
    if value in TRUE | FALSE:
        return value in TRUE
    raise ImproperlyConfigured(f"{name} must be true or false, not {value!r}.")


def integer(name: str, default: int, *, least: int = 0, most: int = 2**31) -> int:
    """A whole number between `least` and `most`."""
    value = text(name, str(default))
    try:
        number = int(value)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a whole number, not {value!r}.") from None
    if not least <= number <= most:
        raise ImproperlyConfigured(f"{name} must be between {least} and {most}, not {number}.")
    return number


def phone(name: str, default: str) -> str:
    """A number in E.164, such as +5511999990000, or the default."""
    value = text(name, default)
    if value != default and not E164.fullmatch(value):
        raise ImproperlyConfigured(f"{name} must be a number such as +5511999990000, not {value!r}.")
    return value


def words(name: str, default: str = "") -> list[str]:
    """A comma-separated list, without empty items."""
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def networks(name: str, default: str = "") -> tuple[IPv4Network | IPv6Network, ...]:
    """A comma-separated list of networks or single addresses, such as 10.0.0.0/8."""
    try:
        return tuple(ip_network(word) for word in words(name, default))
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} must be a list of networks: {error}.") from None


def ports(name: str, default: str) -> frozenset[int]:
    """A comma-separated list of port numbers."""
    found = words(name, default)
    if not all(word.isascii() and word.isdigit() and 0 < int(word) < 65536 for word in found):
        raise ImproperlyConfigured(f"{name} must be a list of port numbers.")
    return frozenset(int(word) for word in found)


def url(name: str, default: str | _Required = REQUIRED, *, schemes: tuple[str, ...]) -> str:
    """An absolute URL with one of `schemes` and a host, without trailing slash."""
    value = text(name, default)
    if not value:
        return value
    parts = urlsplit(value)
    if parts.scheme not in schemes or not parts.hostname:
        raise ImproperlyConfigured(f"{name} must be a URL starting with {' or '.join(schemes)}.")
    return value.rstrip("/")


def signing_key(name: str, default: str | _Required = REQUIRED) -> str:
    """A secret of Standard Webhooks: at least 24 bytes in base64, with or without `whsec_`."""
    value = text(name, default)
    try:
        key = b64decode(value.removeprefix("whsec_"), validate=True)
    except ValueError:
        key = b""
    if value and len(key) < SHORTEST_KEY:
        raise ImproperlyConfigured(f"{name} must be at least {SHORTEST_KEY} random bytes in base64.")
    return value


def _file(name: str, path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise ImproperlyConfigured(f"{name}_FILE cannot be read: {error.strerror}.") from None
