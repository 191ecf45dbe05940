"""Alerts on a page: those that are open, and what they say."""

from __future__ import annotations

from django.http import HttpRequest
from django.template import Library

from pilot.alerts import of_tenant, wording
from pilot.alerts.kinds import Severity, kind_of
from pilot.models import Alert

MOST_SHOWN = 50

register = Library()


@register.simple_tag
def open_alerts(request: HttpRequest) -> list[Alert]:
    """The open alerts of the tenant for which the person acts: the critical ones first, then the newest."""
    tenant = getattr(request, "tenant", None)
    if tenant is None:
        return []
    newest = of_tenant(tenant.pk).filter(recovered_at=None).order_by("-id")[:MOST_SHOWN]
    return sorted(newest, key=lambda alert: not is_critical(alert))


@register.filter
def is_critical(alert: Alert) -> bool:
    """Whether somebody must look at once."""
    return kind_of(alert.kind).severity is Severity.CRITICAL


@register.filter
def alert_title(alert: Alert) -> str:
    """What kind of trouble it is."""
    return wording.title(alert)


@register.filter
def alert_text(alert: Alert) -> str:
    """What is wrong."""
    return wording.sentence(alert)
