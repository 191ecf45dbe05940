"""An alert in words, in the language of whoever reads it."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import override

from pilot.alerts.channels import Notice
from pilot.alerts.kinds import Severity, kind_of
from pilot.models import Alert, AlertDelivery


class _Values(dict[str, Any]):
    """A value that whoever raised the alert left out must not keep it from being told."""

    def __missing__(self, name: str) -> str:
        return "?"


def title(alert: Alert) -> str:
    """What kind of trouble it is, in a few words of the active language."""
    return str(kind_of(alert.kind).title)


def sentence(alert: Alert, *, recovered: bool = False) -> str:
    """What is wrong, or that it is over, in the active language."""
    kind = kind_of(alert.kind)
    words = str(kind.recovered if recovered else kind.sentence)
    return words % _Values({"name": alert.subject} | alert.detail)


def notice_of(delivery: AlertDelivery) -> Notice:
    """What a delivery says. `delivery.alert.tenant` should be loaded."""
    alert = delivery.alert
    recovered = delivery.notice == AlertDelivery.Notice.RECOVERED
    with override(delivery.language):
        return Notice(
            id=f"alert-{alert.pk}-{delivery.pk}",
            recipient=delivery.recipient,
            alert=alert,
            recovered=recovered,
            urgent=not recovered and kind_of(alert.kind).severity is Severity.CRITICAL,
            title=_title(alert, recovered),
            text=sentence(alert, recovered=recovered),
            at=alert.recovered_at if recovered and alert.recovered_at else alert.raised_at,
        )


def _title(alert: Alert, recovered: bool) -> str:
    words = _("Over: %(title)s") % {"title": title(alert)} if recovered else title(alert)
    whole = f"{words} · {alert.tenant}" if alert.tenant else words
    return " ".join(whole.split())  # a line of its own in a mail's header would be another header
