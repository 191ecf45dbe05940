"""How many requests a key may make of the API, and all keys of a tenant together. A batch of messages is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from accounts.models import ApiKey
from pilot.buckets import BUCKETS, Bucket, Demand, Drawn

if TYPE_CHECKING:  # rest_framework.views imports this module
    from rest_framework.views import APIView

COUNTED = "pilot.drawn"  # in the ASGI scope: what was counted before must not be counted again


def draw(requests: Sequence[tuple[ApiKey, int]]) -> list[Drawn]:
    """Counts so many requests of each key, in one round trip. Empty when nothing is limited."""
    return BUCKETS.draw([Demand(buckets, number) for key, number in requests if (buckets := buckets_of(key))])


def buckets_of(key: ApiKey) -> tuple[Bucket, ...]:
    """What the key's requests are taken from; empty when nothing is limited."""
    limits = (
        Bucket("key", f"key:{key.pk}", settings.API_KEY_RATE, settings.API_KEY_BURST),
        Bucket("tenant", f"tenant:{key.tenant_id}", settings.API_TENANT_RATE, settings.API_TENANT_BURST),
    )
    return tuple(bucket for bucket in limits if bucket.rate)


class KeyThrottle(BaseThrottle):
    """Lets a request in when its key and its tenant have a token; keeps what was drawn in `request.drawn`."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        if not isinstance(request.auth, ApiKey):
            return True  # refused for that, or open to all
        before: Drawn | None = request.META.get("asgi.scope", {}).get(COUNTED)
        drawn = before or next(iter(draw([(request.auth, 1)])), None)
        request._request.drawn = drawn  # type: ignore[attr-defined]
        self._wait = drawn.wait() if drawn else 0.0
        return drawn is None or drawn.granted > 0

    def wait(self) -> float:
        return self._wait
