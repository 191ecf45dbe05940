"""Pushover, for those who run Pilot. API: https://pushover.net/api (1,024 characters, 250 in the title)."""

from __future__ import annotations

from django.conf import settings

from pilot.alerts.channels import Notice, Recipient, operators
from pilot.alerts.kinds import Severity, kind_of
from pilot.alerts.posting import post
from pilot.models import Alert

LONGEST_TITLE, LONGEST_MESSAGE = 250, 1024


class Pushover:
    """Off unless PUSHOVER_TOKEN and PUSHOVER_USER are set."""

    audience = "operators"

    def recipients(self, alert: Alert) -> list[Recipient]:
        return operators("") if settings.PUSHOVER_TOKEN and settings.PUSHOVER_USER else []

    def send(self, notice: Notice) -> None:
        fields = {
            "token": settings.PUSHOVER_TOKEN,
            "user": settings.PUSHOVER_USER,
            "title": notice.title[:LONGEST_TITLE],
            "message": notice.text[:LONGEST_MESSAGE],
            "priority": str(_priority(notice)),
            "timestamp": str(int(notice.at.timestamp())),
        }
        post(f"{settings.PUSHOVER_URL}/1/messages.json", data=fields)


def _priority(notice: Notice) -> int:
    severity = Severity.NOTICE if notice.recovered else kind_of(notice.kind).severity
    return severity.value
