"""Changes of endpoints that people and programs make, each with its line in the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from accounts import audit
from accounts.audit import Actor
from accounts.models import Action
from webhooks import deliveries, endpoints
from webhooks.models import WebhookEndpoint, WebhookReplay


@transaction.atomic
def create(*, actor: Actor, **fields: Any) -> tuple[WebhookEndpoint, str]:
    """endpoints.create(), recorded."""
    endpoint, secret = endpoints.create(**fields)
    detail = {"url": endpoint.url, "environment": endpoint.environment, "types": endpoint.types}
    _record(actor, Action.WEBHOOK_CREATED, endpoint, detail)
    return endpoint, secret


@transaction.atomic
def change(endpoint: WebhookEndpoint, *, actor: Actor, **values: Any) -> None:
    """endpoints.change(), recorded: which fields, and the new URL; never a header's value."""
    endpoints.change(endpoint, **values)
    detail = {"fields": sorted(values)} | ({"url": values["url"]} if "url" in values else {})
    _record(actor, Action.WEBHOOK_CHANGED, endpoint, detail)


@transaction.atomic
def rotate(endpoint: WebhookEndpoint, *, actor: Actor, overlap: timedelta, now: datetime) -> str:
    """endpoints.rotate(), recorded."""
    secret = endpoints.rotate(endpoint, overlap=overlap, now=now)
    _record(actor, Action.WEBHOOK_SECRET_ROTATED, endpoint, {"ends_at": (now + overlap).isoformat()})
    return secret


@transaction.atomic
def disable(endpoint: WebhookEndpoint, *, actor: Actor, now: datetime) -> bool:
    """endpoints.disable(), recorded."""
    was_on = endpoints.disable(endpoint, now=now)
    if was_on:
        _record(actor, Action.WEBHOOK_DISABLED, endpoint)
    return was_on


@transaction.atomic
def enable(endpoint: WebhookEndpoint, *, actor: Actor, now: datetime, catch_up: bool) -> bool:
    """endpoints.enable(), recorded."""
    was_off = endpoints.enable(endpoint, now=now, catch_up=catch_up)
    if was_off:
        _record(actor, Action.WEBHOOK_ENABLED, endpoint, {"catch_up": catch_up})
    return was_off


@transaction.atomic
def remove(endpoint: WebhookEndpoint, *, actor: Actor, now: datetime) -> None:
    """endpoints.remove(), recorded."""
    _record(actor, Action.WEBHOOK_REMOVED, endpoint, {"url": endpoint.url})
    endpoints.remove(endpoint, now=now)


@transaction.atomic
def order_replay(endpoint: WebhookEndpoint, *, actor: Actor, **order: Any) -> WebhookReplay:
    """deliveries.order_replay(), recorded."""
    replay = deliveries.order_replay(endpoint, **order)
    detail = {"since": replay.since.isoformat(), "until": replay.until.isoformat()}
    _record(actor, Action.WEBHOOK_REPLAYED, endpoint, detail | {"everything": replay.everything})
    return replay


def _record(
    actor: Actor, action: Action, endpoint: WebhookEndpoint, detail: Mapping[str, Any] | None = None
) -> None:
    audit.record(tenant=endpoint.tenant, actor=actor, action=action, target=endpoint, detail=detail)
