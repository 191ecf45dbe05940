"""The rows that a measurement starts from, and how many there are after it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Max, Sum
from django.utils import timezone

from accounts import keys
from accounts.models import Environment, Project, Tenant
from billing.models import Usage
from instances.models import EvolutionServer, Instance, InstanceStatus, Lane
from messaging import opt_ins
from messaging.models import Category, Message, MessageEvent, Status, Template, TemplateVersion
from pilot.celery import wake_all
from pilot.ids import new_id
from pilot.models import Heartbeat

NUMBER = "+5511999990000"
TEXT = "Oi {{name}}, {{code}}"
VARIABLES = {"name": "Ana", "code": "123456"}
BODY = {"instance": "i0", "to": "5511999990000", "template": "code", "variables": VARIABLES}
AT_ONCE = 1000


@dataclass(frozen=True)
class World:
    """One project with an API key, and its open instances i0, i1, …"""

    project: Project
    version: TemplateVersion
    instances: list[Instance]
    api_key: str


def make_world(*, instances: int, provider_url: str) -> World:
    """Open instances without pace, typing or warm-up, a template, an opt-in and a key."""
    now = timezone.now()
    tenant = Tenant.objects.create(name="Bench", slug="bench")
    project = Project.objects.create(tenant=tenant, name="Bench", slug="bench")
    _key, raw = keys.issue(project=project, name="bench", environment=Environment.LIVE, now=now)
    opt_ins.grant(tenant=tenant, number=NUMBER, source="bench", now=now)
    server = EvolutionServer.objects.create(name="bench", url=provider_url, api_key="bench")
    made = Instance.objects.bulk_create(_instance(tenant, server, number) for number in range(instances))
    Lane.objects.bulk_create(Lane(instance=instance) for instance in made)
    return World(project, _template(project), made, raw)


def _instance(tenant: Tenant, server: EvolutionServer, number: int) -> Instance:
    return Instance(
        tenant=tenant,
        name=f"i{number}",
        server=server,
        provider_name=f"bench-{number}",
        hook_token=f"bench-{number}",
        hook_digest=hashlib.sha256(f"bench-{number}".encode()).hexdigest(),
        status=InstanceStatus.OPEN,
        pace_least_seconds=0,
        pace_most_seconds=0,
        urgent_gap_seconds=0,
        typing_ms=0,
    )


def _template(project: Project) -> TemplateVersion:
    template = Template.objects.create(
        tenant=project.tenant, project=project, name="code", category=Category.UTILITY
    )
    version = TemplateVersion.objects.create(
        template=template, number=1, content={"text": TEXT}, variables=sorted(VARIABLES)
    )
    Template.objects.filter(pk=template.pk).update(current_version=version)
    return version


def queue(world: World, messages: int) -> None:
    """Stores messages as if they had just been accepted, spread evenly over the instances; all appear at once."""
    with transaction.atomic():
        for start in range(0, messages, AT_ONCE):
            made = Message.objects.bulk_create(_messages(world, range(start, min(start + AT_ONCE, messages))))
            MessageEvent.objects.bulk_create(_accepted(message) for message in made)
        with connection.cursor() as cursor:  # as autovacuum would have by now
            cursor.execute("ANALYZE messaging_message")


def _messages(world: World, numbers: range) -> Iterator[Message]:
    now = timezone.now()
    for number in numbers:
        yield Message(
            id=new_id(),
            tenant_id=world.project.tenant_id,
            project=world.project,
            instance=world.instances[number % len(world.instances)],
            template_version=world.version,
            environment=Environment.LIVE,
            to=NUMBER,
            category=Category.UTILITY,
            variables=VARIABLES,
            content={"text": "Oi Ana, 123456"},
            created_at=now,
            deliver_until=now + timedelta(hours=1),
        )


def _accepted(message: Message) -> MessageEvent:
    return MessageEvent(
        message=message, tenant_id=message.tenant_id, kind=Status.QUEUED, detail={}, at=message.created_at
    )


def wake(world: World) -> None:
    """Wakes every instance, as accepting a message does."""
    wake_all([instance.pk for instance in world.instances])


# Both terms use small partial indexes, so that asking often costs nothing.
_WAITING = """
SELECT (SELECT count(*) FROM messaging_message WHERE status = 'queued' AND next_attempt_at IS NULL)
     + (SELECT count(*) FROM messaging_message WHERE lease_until IS NOT NULL)
"""


def count_waiting() -> int:
    """Messages that are queued or being sent."""
    with connection.cursor() as cursor:
        cursor.execute(_WAITING)
        return int(cursor.fetchone()[0])


def count_submitted() -> int:
    """Messages that the provider took over."""
    return Message.objects.filter(status=Status.SUBMITTED).exclude(provider_message_id=None).count()


def last_submitted_at() -> datetime:
    """When the provider took over the last of them."""
    last: datetime = Message.objects.aggregate(last=Max("submitted_at"))["last"]
    return last


def count_accepted() -> int:
    """Messages that are stored, and also have their first event and are counted for billing."""
    counted = Usage.objects.aggregate(total=Sum("accepted"))["total"] or 0
    told = MessageEvent.objects.filter(kind=Status.QUEUED).count()
    return min(Message.objects.count(), told, counted)


def count_subscribed() -> int:
    """Workers that said they listen to all the queues they should."""
    workers = Heartbeat.objects.filter(kind="worker").values_list("detail", flat=True)
    return sum(detail["queues"] >= detail["wanted"] for detail in workers)
