"""The dashboard's pages about API keys. A raw key is in the one page that answers its making, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods, require_safe

from accounts import audit, keys
from accounts.forms import NewKeyForm, RotationForm
from accounts.models import Action, ApiKey, KeyState, Role, Scope
from accounts.tenancy import MemberRequest, member_view

ENDED = 50  # of the keys that work no more, the newest
ICONS: Mapping[KeyState, str] = {
    KeyState.ACTIVE: "open",
    KeyState.ENDING: "queued",
    KeyState.REVOKED: "cancelled",
    KeyState.EXPIRED: "removed",
}


@dataclass(frozen=True, slots=True)
class Card:
    """A key at a glance. `ends_at` is when it stops working, or stopped; None when no end is set."""

    key: ApiKey
    state: KeyState
    icon: str
    ends_at: datetime | None
    scopes: list[str]


@require_safe
@member_view(role=Role.ADMIN)
def key_list(request: MemberRequest) -> HttpResponse:
    """The keys that work, and the newest of those that do no more."""
    now = timezone.now()
    working = cards(_mine(request).filter(keys.valid(now)), now=now)
    ended = cards(_mine(request).exclude(keys.valid(now))[:ENDED], now=now)
    return render(request, "dashboard/keys.html", {"working": working, "ended": ended})


@require_http_methods(["GET", "HEAD", "POST"])
@member_view(role=Role.ADMIN)
def new_key(request: MemberRequest) -> HttpResponse:
    """Asks what the key is for, then issues it and shows it."""
    now = timezone.now()
    form = NewKeyForm(_sent(request), tenant=request.tenant, now=now)
    if not form.is_valid():
        return render(request, "dashboard/new_key.html", {"form": form})
    try:
        key, raw = _issue(request, form, now)
    except keys.IssuedBefore as error:
        messages.warning(request, error.message)
        return redirect("dashboard:keys")
    return render(request, "dashboard/raw_key.html", {"key": key, "raw": raw})


@require_http_methods(["GET", "HEAD", "POST"])
@member_view(role=Role.ADMIN)
def rotate_key(request: MemberRequest, prefix: str) -> HttpResponse:
    """Asks when the old key shall end, then makes its successor and shows it."""
    key, now = _key(request, prefix), timezone.now()
    form = RotationForm(_sent(request))
    if not form.is_valid():
        return render(request, "dashboard/rotate_key.html", {"key": key, "form": form})
    try:
        successor, raw = _rotate(request, key, form.cleaned_data["overlap"], now)
    except keys.KeyEnded as error:
        messages.error(request, error.message)
        return redirect("dashboard:keys")
    old = card(_key(request, prefix), now=now)
    return render(request, "dashboard/raw_key.html", {"key": successor, "raw": raw, "old": old})


@require_http_methods(["GET", "HEAD", "POST"])
@member_view(role=Role.ADMIN)
def revoke_key(request: MemberRequest, prefix: str) -> HttpResponse:
    """Asks first, then ends the key at once."""
    key, now = _key(request, prefix), timezone.now()
    if request.method != "POST":
        return render(request, "dashboard/revoke_key.html", {"card": card(key, now=now)})
    if _revoke(request, key, now):
        messages.success(request, _("The key was revoked. Programs that still use it are refused."))
    else:
        messages.info(request, _("The key had ended before."))
    return redirect("dashboard:keys")


def cards(rows: QuerySet[ApiKey], *, now: datetime) -> list[Card]:
    """The keys as they stand, the newest first."""
    return [card(key, now=now) for key in rows]


def card(key: ApiKey, *, now: datetime) -> Card:
    """The key as it stands."""
    state = keys.state(key, now=now)
    scopes = [str(Scope(scope).label) for scope in key.scopes]
    return Card(key, state, ICONS[state], keys.ends_at(key), scopes)


@transaction.atomic
def _issue(request: MemberRequest, form: NewKeyForm, now: datetime) -> tuple[ApiKey, str]:
    key, raw = keys.issue(**form.cleaned_data, created_by=request.user, now=now)
    detail = {"environment": key.environment, "scopes": key.scopes, "project": key.project.slug}
    _record(request, Action.KEY_ISSUED, key, detail)
    return key, raw


@transaction.atomic
def _rotate(request: MemberRequest, key: ApiKey, overlap: timedelta, now: datetime) -> tuple[ApiKey, str]:
    successor, raw = keys.rotate(key, overlap=overlap, now=now)
    detail = {"successor": successor.prefix, "ends_at": (now + overlap).isoformat()}
    _record(request, Action.KEY_ROTATED, key, detail)
    return successor, raw


@transaction.atomic
def _revoke(request: MemberRequest, key: ApiKey, now: datetime) -> bool:
    revoked = keys.revoke(key, now=now)
    if revoked:
        _record(request, Action.KEY_REVOKED, key)
    return revoked


def _record(
    request: MemberRequest, action: Action, key: ApiKey, detail: Mapping[str, Any] | None = None
) -> None:
    audit.record(tenant=request.tenant, actor=request.user, action=action, target=key, detail=detail)


def _sent(request: MemberRequest) -> QueryDict | None:
    """The form as sent, or None when it is asked for."""
    return request.POST if request.method == "POST" else None


def _mine(request: MemberRequest) -> QuerySet[ApiKey]:
    rows = ApiKey.objects.filter(tenant=request.tenant).select_related("project", "rotated_to")
    return rows.defer("digest", "rotated_to__digest").order_by("-id")


def _key(request: MemberRequest, prefix: str) -> ApiKey:
    return get_object_or_404(_mine(request), prefix=prefix)


urlpatterns = [
    path("keys", key_list, name="keys"),
    path("new-key", new_key, name="new_key"),
    path("keys/<slug:prefix>/rotate", rotate_key, name="rotate_key"),
    path("keys/<slug:prefix>/revoke", revoke_key, name="revoke_key"),
]
