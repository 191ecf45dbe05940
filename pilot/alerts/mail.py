"""Alerts by e-mail."""

from __future__ import annotations

import smtplib

from django.conf import settings
from django.core.mail import EmailMessage

from pilot.alerts.channels import NotDelivered, Notice, Recipient, operators
from pilot.models import Alert


class OperatorMail:
    """To those who run Pilot: the addresses of ALERT_EMAILS. Off without any."""

    audience = "operators"

    def recipients(self, alert: Alert) -> list[Recipient]:
        return operators(*settings.ALERT_EMAILS)

    def send(self, notice: Notice) -> None:
        send(notice)


def send(notice: Notice) -> None:
    """Sends one mail to the notice's recipient. Raises NotDelivered."""
    # The same id in each attempt: a reader's mail program shows one that came twice only once.
    headers = {"Message-ID": f"<{notice.id}@{settings.PUBLIC_HOST}>", "Auto-Submitted": "auto-generated"}
    mail = EmailMessage(f"[Pilot] {notice.title}", notice.text, to=[notice.recipient], headers=headers)
    try:
        mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        final = all(code >= 500 for code, _reason in error.recipients.values())
        raise NotDelivered("the server refused the recipient", final=final) from error
    except (smtplib.SMTPException, OSError) as error:
        raise NotDelivered(type(error).__name__) from error
