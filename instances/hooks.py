"""The webhook through which a provider tells us about an instance: its secret URL, and keeping it set."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime

from django.conf import settings

from instances import status
from instances.models import Instance
from instances.providers import provider_for
from instances.providers.base import HookConfig
from instances.providers.http import perform


def new_token() -> str:
    """A secret that cannot be guessed; with it in the URL no other proof of origin is needed."""
    return secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    """What is stored to find a token's instance."""
    return hashlib.sha256(token.encode()).hexdigest()


def config_of(instance: Instance) -> HookConfig:
    """The webhook that `instance` should have."""
    url = f"{settings.PUBLIC_URL}/hooks/{instance.provider}/{instance.hook_token}"
    return HookConfig(url=url, events=provider_for(instance).hook_events)


def ensure_hook(*, instance: Instance, now: datetime) -> bool:
    """Sets the webhook again where it is not as it should be. True when it was not.

    Evolution has been seen to lose it in a restart (its public issues 2694, 2027). Does I/O, outside of any
    transaction. Raises ProviderError.
    """
    provider, account, wanted = provider_for(instance), instance.account(), config_of(instance)
    found = perform(provider.get_hook(account))
    if found is not None and found.url == wanted.url and set(found.events) == set(wanted.events):
        return False
    perform(provider.set_hook(account, wanted))
    status.note(instance_id=instance.pk, kind="hook_repaired", at=now, detail={"was_set": found is not None})
    return True
