"""How people sign in: accounts are made by an owner or by staff, so sign-up is closed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest


class AccountAdapter(DefaultAccountAdapter):
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False


def typed_email(request: HttpRequest, credentials: Mapping[str, Any] | None = None) -> str:
    """Whom somebody tries to be, for the counting of failures: axes alone does not know allauth's field names."""
    typed = (credentials or {}).get("email") or request.POST.get("login", "")
    return str(typed).strip().lower()
