"""Alerts by WhatsApp to a tenant's owners and administrators, from the instance of those who run Pilot.

A notice is a message like any other: accepted, queued, paced and shown in the timeline of the tenant that the instance
belongs to. What is wrong with that very instance is told in other ways.
"""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from accounts.alerting import language_of, managers
from accounts.models import ApiKey, Environment, Project, Scope
from instances.models import Instance, InstanceStatus
from messaging.accepting import Idempotency, Order, submit
from messaging.composing import Submission
from messaging.models import Category
from pilot.alerts.channels import NotDelivered, Notice, Recipient
from pilot.alerts.kinds import kind_of
from pilot.errors import PilotError
from pilot.models import Alert


class WhatsApp:
    """Off unless ALERT_WHATSAPP_INSTANCE names an instance."""

    audience = "tenant"

    def recipients(self, alert: Alert) -> list[Recipient]:
        if not settings.ALERT_WHATSAPP_INSTANCE or _is_about(alert, system_instance()):
            return []
        people = [user for user in managers(alert.tenant_id) if user.alert_number]
        return [Recipient(user.alert_number, language_of(user)) for user in people]

    def send(self, notice: Notice) -> None:
        """Accepts the message. Sent again after a crash, it is the same message and not accepted twice."""
        instance = system_instance()
        submission = Submission(
            to=notice.recipient,
            content={"text": f"*{notice.title}*\n{notice.text}"},
            category=Category.UTILITY,
            instance=instance.name,
            skip_opt_in_validation=True,  # they asked for it themselves; an opt-out still counts
        )
        order = Order(_right_to_send(instance), submission, Idempotency(notice.id, notice.id))
        try:
            submit(order, now=timezone.now())
        except PilotError as error:
            raise NotDelivered(f"{error.code}: {error.message}", final=True) from error


def system_instance() -> Instance:
    """The instance that ALERT_WHATSAPP_INSTANCE names. Raises ImproperlyConfigured when there is none."""
    slug, _, name = settings.ALERT_WHATSAPP_INSTANCE.partition("/")
    named = Instance.objects.filter(tenant__slug=slug, name=name).exclude(status=InstanceStatus.REMOVED)
    instance = named.select_related("tenant").defer("credentials", "hook_token").first()
    if instance is None:
        raise ImproperlyConfigured(f"ALERT_WHATSAPP_INSTANCE: tenant {slug!r} has no instance {name!r}.")
    return instance


def _is_about(alert: Alert, instance: Instance) -> bool:
    return kind_of(alert.kind).of_instance and alert.subject == str(instance.pk)


def _right_to_send(instance: Instance) -> ApiKey:
    """What a key of the instance's own tenant would allow; it is not stored, so nobody can use it."""
    projects = Project.objects.filter(tenant=instance.tenant_id).select_related("tenant")
    project = projects.filter(default_instance__instance=instance).first() or projects.order_by("pk").first()
    if project is None:
        raise ImproperlyConfigured(
            f"The tenant of ALERT_WHATSAPP_INSTANCE, {instance.tenant}, has no project."
        )
    return ApiKey(
        tenant=project.tenant,
        project=project,
        name="alerts",
        environment=Environment.LIVE,
        scopes=[Scope.SKIP_OPT_IN],
    )
