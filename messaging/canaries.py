"""A message that an instance sends to itself, where that is wanted, to see that it delivers while it has nothing to do.

Off unless settings.CANARY or the instance's own switch is on. A canary is a message like any other (claimed, paced, and
in the tenant's list with the source "canary"), but nobody pays for it. One with traffic needs none.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils.translation import gettext as _

from accounts.models import Environment, Project
from instances.models import Instance, InstanceStatus, Outage, Vitals
from instances.providers import names_with
from messaging.models import Category, Message, MessageEvent, Status
from pilot.celery import wake_on_commit

SOURCE = "canary"
LIFE = timedelta(minutes=10)
AT_ONCE = 100  # in one run; the others are due at the next


def send(*, now: datetime) -> int:
    """Sends the canaries that are due. Returns how many."""
    return sum(_send(instance, now) for instance in _due(now)[:AT_ONCE])


def lost(*, now: datetime) -> list[int]:
    """The instances whose last canary was taken over and did not arrive, though the provider was asked for it."""
    taken_over = Message.objects.filter(
        pk=OuterRef("canary_id"),
        status=Status.SUBMITTED,
        submitted_at__lte=now - settings.ACKS_MISSING_AFTER,
        submitted_at__gt=OuterRef("instance__status_changed_at"),
        next_attempt_at__gt=F("submitted_at") + settings.ACK_POLL_AFTER,
    )
    silent = Q(acknowledged_at=None) | Q(acknowledged_at__lt=F("canary_at"))
    suspected = Vitals.objects.filter(silent, Exists(taken_over), instance__status=InstanceStatus.OPEN)
    return list(suspected.values_list("instance", flat=True))


def _due(now: datetime) -> QuerySet[Instance]:
    """Open instances that have proved nothing for a while, and had no canary for as long, or since their restart."""
    since = now - settings.CANARY_EVERY
    restarted = Outage.objects.filter(
        instance=OuterRef("instance"),
        kind=Outage.Kind.NOT_DELIVERING,
        ended_at=None,
        restarted_at__gt=OuterRef("canary_at"),
    )
    sung = Q(acknowledged_at__gt=since) | Q(~Exists(restarted), canary_at__gt=since)
    alive = Vitals.objects.filter(sung, instance=OuterRef("pk"))
    wanted = Q() if settings.CANARY else Q(canary=True)
    has_number = Q() if settings.CANARY_NUMBER else ~Q(number="")
    able = Exists(Project.objects.filter(tenant=OuterRef("tenant")))
    due = Instance.objects.filter(wanted, has_number, able, ~Exists(alive), status=InstanceStatus.OPEN)
    mortal = due.filter(provider__in=names_with("restart"), paused=False)
    return mortal.defer("credentials", "hook_token").order_by("pk")


def _send(instance: Instance, now: datetime) -> bool:
    with transaction.atomic():
        message = Message.objects.create(
            tenant_id=instance.tenant_id,
            project=Project.objects.filter(tenant=instance.tenant_id).order_by("pk")[0],
            instance=instance,
            environment=Environment.LIVE,
            source=SOURCE,
            to=settings.CANARY_NUMBER or instance.number,
            category=Category.UTILITY,
            body_override=True,
            content={
                "text": _("Pilot checks that this number delivers: %(time)s.") % {"time": f"{now:%H:%M}"}
            },
            created_at=now,
            deliver_until=now + LIFE,
        )
        MessageEvent.objects.create(message=message, tenant_id=instance.tenant_id, kind=Status.QUEUED, at=now)
        noted = {"canary_id": message.pk, "canary_at": now}
        Vitals.objects.update_or_create(instance=instance, defaults=noted)
        wake_on_commit(instance.pk)
    return True
