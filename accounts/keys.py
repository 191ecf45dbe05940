"""API keys: the one place that sees a raw key.

A raw key reads `pilot_<environment>_<8 characters>_<43 characters>`. Everything up to the last underscore is the
prefix, by which people recognise it; the whole is stored only as SHA-256, which is enough for 256 random bits.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from accounts.models import ApiKey, KeyState, Project, Scope, Tenant, User
from pilot import sql
from pilot.errors import PilotError

LAST_USED_STEP = timedelta(minutes=1)  # a write per request would make each key a hot row


class InvalidKey(PilotError):
    """Unknown, expired or revoked; which of them is not told."""

    code = "unauthenticated"
    status = 401


class IssuedBefore(PilotError):
    """The form was sent twice. Its key exists, and its raw form was in the first answer."""

    code = "issued_before"
    status = 409


class KeyEnded(PilotError):
    """The key was revoked, has expired or already has a successor."""

    code = "key_ended"
    status = 409


def issue(
    *,
    project: Project,
    name: str,
    environment: str,
    now: datetime,
    scopes: Sequence[str] = (Scope.MESSAGES_READ, Scope.MESSAGES_WRITE),
    expires_at: datetime | None = None,
    created_by: User | None = None,
    once: UUID | None = None,
) -> tuple[ApiKey, str]:
    """Makes a key. Returns the row and the raw key, which cannot be had again.

    Raises IssuedBefore, and makes none, when the tenant has a key with this `once`.
    """
    prefix = f"pilot_{environment}_{secrets.token_hex(4)}"
    raw = f"{prefix}_{secrets.token_urlsafe(32)}"
    values = {
        "project": project,
        "name": name,
        "environment": environment,
        "prefix": prefix,
        "digest": digest(raw),
        "scopes": list(scopes),
        "expires_at": expires_at,
        "created_by": created_by,
        "created_at": now,
    }
    key, made = ApiKey.objects.get_or_create(
        tenant_id=project.tenant_id, once=once or uuid4(), defaults=values
    )
    if not made:
        raise IssuedBefore(_("This key was issued before. Its raw form is shown only once."))
    return key, raw


KEY, PROJECT, TENANT = sql.columns(ApiKey), sql.columns(Project), sql.columns(Tenant)
# Every request of the API asks this: valid() as a statement that stays planned.
_VALID = f"""
SELECT {", ".join([f"k.{name}" for name in KEY] + [f"p.{name}" for name in PROJECT] + [f"t.{name}" for name in TENANT])}
FROM accounts_apikey k JOIN accounts_project p ON p.id = k.project_id JOIN accounts_tenant t ON t.id = k.tenant_id
WHERE k.digest = ANY(%s) AND (k.revoked_at IS NULL OR k.revoked_at > %s) AND (k.expires_at IS NULL OR k.expires_at > %s)
"""


def authenticate(raw: str, *, now: datetime) -> ApiKey:
    """The valid key for `raw`, with its project and tenant. Raises InvalidKey."""
    if key := authenticate_all([raw], now=now).get(raw):
        return key
    raise InvalidKey(_("The API key is missing, wrong, expired or revoked."))


def authenticate_all(raws: Collection[str], *, now: datetime) -> dict[str, ApiKey]:
    """Those of many raw keys that are valid, with their projects and tenants."""
    digests = {digest(raw): raw for raw in raws}
    rows = sql.fetch(_VALID, [list(digests), now, now])
    keys = [_loaded(row) for row in rows]
    for key in keys:
        _note_use(key, now)
    return {digests[key.digest]: key for key in keys}


def _loaded(row: tuple[Any, ...]) -> ApiKey:
    key = ApiKey.from_db("default", KEY, row[: len(KEY)])
    key.project = Project.from_db("default", PROJECT, row[len(KEY) : -len(TENANT)])
    key.project.tenant = key.tenant = Tenant.from_db("default", TENANT, row[-len(TENANT) :])
    return key


def revoke(key: ApiKey, *, now: datetime) -> bool:
    """Ends a key at once. False when it had ended before."""
    return ApiKey.objects.filter(_not_revoked(now), pk=key.pk).update(revoked_at=now) == 1


@transaction.atomic
def rotate(key: ApiKey, *, overlap: timedelta, now: datetime) -> tuple[ApiKey, str]:
    """Makes a successor with the same rights; the old key goes on for `overlap`, then ends.

    Raises KeyEnded, and makes none, for a key that has ended or has a successor: it would come back to life.
    """
    successor, raw = issue(
        project=key.project,
        name=key.name,
        environment=key.environment,
        scopes=key.scopes,
        expires_at=key.expires_at,
        created_by=key.created_by,
        now=now,
    )
    still_valid = ApiKey.objects.filter(valid(now), pk=key.pk, rotated_to=None)
    if not still_valid.update(rotated_to=successor, revoked_at=now + overlap):
        raise KeyEnded(_("The key has ended or was rotated before."))
    return successor, raw


def ends_at(key: ApiKey) -> datetime | None:
    """When the key stops working, or stopped; None when no end is set."""
    return min(filter(None, (key.revoked_at, key.expires_at)), default=None)


def state(key: ApiKey, *, now: datetime) -> KeyState:
    """How the key stands at `now`."""
    end = ends_at(key)
    if end and end <= now:
        return KeyState.REVOKED if end == key.revoked_at else KeyState.EXPIRED
    return KeyState.ENDING if key.revoked_at else KeyState.ACTIVE


def valid(now: datetime) -> Q:
    """The keys that work at `now`."""
    return _not_revoked(now) & (Q(expires_at=None) | Q(expires_at__gt=now))


def digest(raw: str) -> str:
    """What is stored of a raw key."""
    return hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()


def _not_revoked(now: datetime) -> Q:
    return Q(revoked_at=None) | Q(revoked_at__gt=now)


def _note_use(key: ApiKey, now: datetime) -> None:
    if key.last_used_at is None or key.last_used_at < now - LAST_USED_STEP:
        ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)
