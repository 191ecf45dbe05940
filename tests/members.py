"""Browsers of people who are signed in."""

from __future__ import annotations

import itertools

from django.test import Client

from accounts.models import Membership, Role, Tenant, User

_numbers = itertools.count(1)


def signed_in(user: User) -> Client:
    """An English browser of this person."""
    browser = Client(headers={"accept-language": "en"})
    browser.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return browser


def make_user(*tenants: Tenant, role: str = Role.OWNER, **fields: str) -> User:
    """A person who is a member of these tenants."""
    user = User.objects.create(**{"email": f"pessoa{next(_numbers)}@example.com"} | fields)
    for tenant in tenants:
        Membership.objects.create(tenant=tenant, user=user, role=role)
    return user


def member(*tenants: Tenant, role: str = Role.OWNER) -> Client:
    """The browser of a new member of these tenants."""
    return signed_in(make_user(*tenants, role=role))
