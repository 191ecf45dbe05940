"""On pages of other apps: what has become of endpoints that somebody should look at."""

from __future__ import annotations

from django.http import HttpRequest
from django.template import Library

from webhooks import endpoints
from webhooks.models import WebhookEndpoint

MOST_SHOWN = 5

register = Library()


@register.simple_tag
def webhooks_off(request: HttpRequest) -> list[WebhookEndpoint]:
    """The endpoints that Pilot switched off, the newest first; none for people who may not manage them."""
    tenant = getattr(request, "tenant", None)
    if tenant is None or not getattr(request, "may_manage", False):
        return []
    rows = endpoints.disabled_by_pilot(tenant).defer("headers", "secrets")
    return list(rows.order_by("-disabled_at")[:MOST_SHOWN])
