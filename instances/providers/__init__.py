"""The providers Pilot can send through: one line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from django.conf import settings

from instances.providers.base import Provider
from instances.providers.evolution import Evolution
from instances.providers.instagram import Instagram
from instances.providers.meta import MetaCloud
from instances.providers.simulator import Simulator

if TYPE_CHECKING:
    from instances.models import Instance

META = MetaCloud(send_timeout=settings.SEND_TIMEOUT_SECONDS)
INSTAGRAM = Instagram(send_timeout=settings.SEND_TIMEOUT_SECONDS)

PROVIDERS: Mapping[str, Provider] = {
    Evolution.name: Evolution(send_timeout=settings.SEND_TIMEOUT_SECONDS),
    META.name: META,
    INSTAGRAM.name: INSTAGRAM,
    Simulator.name: Simulator(),
}


def provider_for(instance: Instance) -> Provider:
    """The adapter that speaks for `instance`. KeyError for a provider that no longer exists."""
    return PROVIDERS[instance.provider]


def names_with(*verbs: str) -> list[str]:
    """The providers that support all of these."""
    return [name for name, provider in PROVIDERS.items() if provider.supports.issuperset(verbs)]
