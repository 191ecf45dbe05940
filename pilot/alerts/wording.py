"""An alert in words, in the language of whoever reads it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import override

from pilot.alerts.channels import Notice
from pilot.alerts.kinds import kind_of
from pilot.models import Alert, AlertDelivery

LINES = 5  # of a notice about many alerts; Pushover takes 1,024 characters


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


def notice_of(deliveries: Sequence[AlertDelivery]) -> Notice:
    """What deliveries of one kind to one recipient say. `alert.tenant` should be loaded."""
    first, alerts = deliveries[0], [delivery.alert for delivery in deliveries]
    recovered = first.notice == AlertDelivery.Notice.RECOVERED
    ends = [alert.recovered_at for alert in alerts if recovered and alert.recovered_at]
    with override(first.language):
        return Notice(
            id=_id(deliveries),
            recipient=first.recipient,
            kind=alerts[0].kind,
            alerts=alerts,
            recovered=recovered,
            title=_title(alerts, recovered),
            text=_text(alerts, recovered),
            at=max(ends, default=alerts[0].raised_at),
        )


def _id(deliveries: Sequence[AlertDelivery]) -> str:
    keys = ",".join(str(delivery.pk) for delivery in deliveries)
    return f"alert-{hashlib.blake2s(keys.encode(), digest_size=12).hexdigest()}"


def _title(alerts: Sequence[Alert], recovered: bool) -> str:
    words = title(alerts[0])
    if recovered:
        words = _("Over: %(title)s") % {"title": words}
    if len(alerts) > 1:
        words = f"{words} ({len(alerts)})"
    elif alerts[0].tenant:
        words = f"{words} · {alerts[0].tenant}"
    return " ".join(words.split())  # a line break in the name would begin another header of a mail


def _text(alerts: Sequence[Alert], recovered: bool) -> str:
    lines = [_line(alert, recovered, named=len(alerts) > 1) for alert in alerts[:LINES]]
    if len(alerts) > LINES:
        lines.append(_("… and %(count)s more.") % {"count": len(alerts) - LINES})
    return "\n".join(lines)


def _line(alert: Alert, recovered: bool, *, named: bool) -> str:
    words = sentence(alert, recovered=recovered)
    return f"{alert.tenant}: {words}" if named and alert.tenant else words
