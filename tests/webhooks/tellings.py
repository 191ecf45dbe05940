"""Endpoints, and things that happen to tell of."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from accounts import events
from accounts.models import Project, Tenant
from messaging.models import Message, MessageEvent
from pilot import outbox
from tests.factories import NOW, make_message, make_project, make_tenant
from webhooks import fanning, signing
from webhooks.models import WebhookDelivery, WebhookEndpoint


def make_endpoint(tenant: Tenant | None = None, **fields: Any) -> WebhookEndpoint:
    """An endpoint of the whole tenant, or of a `project`, that was there before anything happened."""
    project = fields.get("project")
    values: dict[str, Any] = {
        "tenant": tenant or (project.tenant if project else make_tenant()),
        "environment": "live",
        "url": "http://127.0.0.1:9/hook",
        "secrets": [{"secret": signing.new_secret(), "ends_at": None}],
        "created_at": NOW - timedelta(days=1),
    }
    return WebhookEndpoint.objects.create(**values | fields)


def happen(message: Message, *kinds: str, at: datetime = NOW, **detail: Any) -> list[MessageEvent]:
    """Lets things happen to a message, and be announced."""
    rows = [
        MessageEvent.objects.create(
            message=message, tenant_id=message.tenant_id, kind=kind, at=at, detail=detail
        )
        for kind in kinds
    ]
    outbox.number(MessageEvent)
    return rows


def tell(endpoint: WebhookEndpoint, count: int = 1, *, subject: str = "") -> list[WebhookDelivery]:
    """Deliveries to an endpoint that wait, of events that are about nothing in particular."""
    for number in range(count):
        events.record(
            tenant_id=endpoint.tenant_id,
            kind="optin.changed",
            data={"number": f"+55119{number:08}", "status": "granted", "source": "form"},
            at=NOW,
            subject=subject,
        )
    fan_out()
    return list(endpoint.deliveries.select_related("event").order_by("id"))


def fan_out() -> None:
    """Until nothing waits."""
    outbox.number(MessageEvent)
    while fanning.fan_out():
        pass


def message_of(endpoint: WebhookEndpoint, project: Project | None = None, **fields: Any) -> Message:
    """A message that the endpoint is told of."""
    return make_message(project or make_project(endpoint.tenant), **fields)
