"""Alerts to a program of those who run Pilot, signed as Standard Webhooks says (https://www.standardwebhooks.com)."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone
from standardwebhooks import Webhook as Signer

from pilot.alerts.channels import Notice, Recipient, operators
from pilot.alerts.kinds import kind_of
from pilot.alerts.posting import post
from pilot.models import Alert


class Webhook:
    """Off unless ALERT_WEBHOOK_URL and ALERT_WEBHOOK_SECRET are set."""

    audience = "operators"

    def recipients(self, alert: Alert) -> list[Recipient]:
        return operators("") if settings.ALERT_WEBHOOK_URL and settings.ALERT_WEBHOOK_SECRET else []

    def send(self, notice: Notice) -> None:
        body = json.dumps(_payload(notice), cls=DjangoJSONEncoder, ensure_ascii=False)
        now = timezone.now()
        headers = {
            "Content-Type": "application/json",
            "webhook-id": notice.id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": Signer(settings.ALERT_WEBHOOK_SECRET).sign(notice.id, now, body),
        }
        post(settings.ALERT_WEBHOOK_URL, content=body.encode(), headers=headers)


def _payload(notice: Notice) -> dict[str, Any]:
    return {
        "event": "recovered" if notice.recovered else "raised",
        "kind": notice.kind,
        "severity": kind_of(notice.kind).severity.name.lower(),
        "title": notice.title,
        "message": notice.text,
        "alerts": [_facts(alert) for alert in notice.alerts],
    }


def _facts(alert: Alert) -> dict[str, Any]:
    return {
        "id": alert.pk,
        "subject": alert.subject,
        "tenant": alert.tenant.slug if alert.tenant else None,
        "detail": alert.detail,
        "raisedAt": alert.raised_at,
        "recoveredAt": alert.recovered_at,
    }
