"""Who of a tenant is told of its alerts, and telling them by e-mail."""

from __future__ import annotations

from django.conf import settings
from django.db.models import QuerySet

from accounts.models import Role, User
from pilot.alerts import mail
from pilot.alerts.channels import Notice, Recipient
from pilot.models import Alert

MOST_TOLD = 20


def managers(tenant_id: int | None) -> QuerySet[User]:
    """The tenant's owners and administrators, those who are longest with it first; not more than are to be told."""
    roles = [Role.OWNER, Role.ADMIN]
    people = User.objects.filter(is_active=True, memberships__tenant=tenant_id, memberships__role__in=roles)
    return people.order_by("memberships__id")[:MOST_TOLD]


def language_of(user: User) -> str:
    """The language in which the person is told."""
    return user.alert_language or settings.LANGUAGE_CODE


class MemberMail:
    """To a tenant's owners and administrators. Off unless EMAIL_URL is set."""

    audience = "tenant"

    def recipients(self, alert: Alert) -> list[Recipient]:
        if not settings.EMAIL_URL:
            return []
        return [Recipient(user.email, language_of(user)) for user in managers(alert.tenant_id)]

    def send(self, notice: Notice) -> None:
        mail.send(notice)
