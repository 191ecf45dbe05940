"""The webhook through which a provider tells us about an instance: its secret, its URL, what it subscribes to."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import replace

from django.conf import settings

from instances.models import Instance
from instances.providers import provider_for
from instances.providers.base import HookConfig


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


def is_right(instance: Instance, found: HookConfig | None) -> bool:
    """Whether what the provider has is the webhook that `instance` should have."""
    return found is not None and _comparable(found) == _comparable(config_of(instance))


def _comparable(hook: HookConfig) -> HookConfig:
    return replace(hook, events=sorted(set(hook.events)), headers=dict(hook.headers))
