"""Which instance a message goes out from: the one asked for, else the project's, else the installation's."""

from __future__ import annotations

from django.conf import settings
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from accounts.models import Project
from instances.models import Instance, InstanceStatus
from pilot.errors import PilotError

# Without the credentials: accepting a message need not decrypt them.
COLUMNS = (
    "id",
    "tenant_id",
    "name",
    "status",
    "paused",
    "concurrency",
    "pace_least_seconds",
    "pace_most_seconds",
    "urgent_gap_seconds",
    "daily_cap",
    "warm_up_from",
    "lane__in_flight",
    "lane__next_send_at",
    "lane__next_urgent_at",
    "lane__sent_on",
    "lane__sent_count",
)


class UnknownInstance(PilotError):
    """The tenant has no instance of that name."""

    code = "unknown_instance"


class NoInstance(PilotError):
    """The request names none, and neither the project nor the installation has a default."""

    code = "no_instance"


class InstanceRemoved(PilotError):
    """The instance is gone for good, so a message would wait for nothing."""

    code = "instance_removed"


def choose_instance(*, project: Project, name: str = "") -> Instance:
    """The instance to send from, always one of the project's tenant. A disconnected one will do: messages wait.

    Raises UnknownInstance, NoInstance or InstanceRemoved, all naming the field `instance`.
    """
    instance = _named(project, name) if name else _default(project) or _last_resort(project)
    if instance is None and name:
        raise UnknownInstance(
            _("There is no instance of that name."),
            fields={"instance": [_("No instance is called “%(name)s”.") % {"name": name}]},
        )
    if instance is None:
        raise NoInstance(
            _("No instance to send from."),
            fields={"instance": [_("Name one, or give the project a default instance.")]},
        )
    if instance.status == InstanceStatus.REMOVED:
        raise InstanceRemoved(
            _("The instance was removed."),
            fields={"instance": [_("“%(name)s” was removed.") % {"name": instance.name}]},
        )
    instance.tenant = project.tenant
    return instance


def _of_tenant(project: Project) -> QuerySet[Instance]:
    return Instance.objects.select_related("lane").only(*COLUMNS).filter(tenant_id=project.tenant_id)


def _named(project: Project, name: str) -> Instance | None:
    """A removed instance's name may have been given to a new one."""
    named = sorted(_of_tenant(project).filter(name=name), key=lambda instance: instance.pk)
    present = [instance for instance in named if instance.status != InstanceStatus.REMOVED]
    return next(reversed(present or named), None)


def _default(project: Project) -> Instance | None:
    return _only(_of_tenant(project).filter(default_of__project=project))


def _last_resort(project: Project) -> Instance | None:
    name = settings.EVOLUTION_INSTANCE_NAME
    if not name:
        return None
    return _only(_of_tenant(project).filter(Q(provider_name=name) | Q(name=name)).order_by("id")[:1])


def _only(instances: QuerySet[Instance]) -> Instance | None:
    """The one row there can be. first() would sort it, which costs as much as the rest of the query."""
    return next(iter(instances), None)
