"""The apps at Meta whose webhooks come here: each has one secret, one address and one verify token."""

from __future__ import annotations

import hashlib
import secrets
from typing import NamedTuple

from django.conf import settings
from django.db.models import Q

from accounts.models import Tenant
from instances import hooks
from instances.models import Instance, MetaApp


def by_hook_token(token: str) -> MetaApp | None:
    """The app whose webhook has this secret in its address."""
    return MetaApp.objects.filter(hook_digest=hooks.digest_of(token)).first()


def app_for(*, tenant: Tenant, secret: str, name: str) -> MetaApp:
    """The tenant's app with this secret, made where there is none. An app of the installation's own is shared."""
    digest = hashlib.sha256(secret.encode()).hexdigest()
    known = MetaApp.objects.filter(Q(tenant=tenant) | Q(tenant=None), secret_digest=digest)
    if app := known.order_by("tenant").first():
        return app
    token = hooks.new_token()
    values = {
        "name": name,
        "secret": secret,
        "hook_token": token,
        "hook_digest": hooks.digest_of(token),
        "verify_token": secrets.token_urlsafe(24),
    }
    app, _created = MetaApp.objects.get_or_create(tenant=tenant, secret_digest=digest, defaults=values)
    return app


def callback_url(app: MetaApp) -> str:
    """What is to be entered as the webhook's address in the app's dashboard at Meta."""
    return f"{settings.PUBLIC_URL}/hooks/meta/{app.hook_token}"


class Callback(NamedTuple):
    """What the owner of an app enters at Meta."""

    url: str
    verify_token: str


def callback_of(instance: Instance) -> Callback | None:
    """The webhook of the app that an instance was linked through; None for one that is no account at Meta."""
    return Callback(callback_url(instance.app), instance.app.verify_token) if instance.app else None
