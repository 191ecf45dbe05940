"""Which instance a message goes out from: the one asked for, else the project's, else the installation's."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from accounts.models import Project
from instances.models import Instance, InstanceStatus, Lane
from pilot import sql
from pilot.errors import PilotError

# Without the credentials: accepting a message need not decrypt them.
INSTANCE = sql.columns(
    Instance,
    "id",
    "tenant_id",
    "server_id",
    "provider",
    "name",
    "status",
    "paused",
    "concurrency",
    "pace_least_seconds",
    "pace_most_seconds",
    "urgent_gap_seconds",
    "daily_cap",
    "warm_up_from",
)
LANE = sql.columns(Lane)


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


_CHOSEN = f"""
SELECT {", ".join(f"i.{name}" for name in INSTANCE)}, {", ".join(f"lane.{name}" for name in LANE)}
FROM instances_instance i JOIN instances_lane lane ON lane.instance_id = i.id
"""
# A removed instance's name may have been given to a new one.
_NAMED = f"{_CHOSEN} WHERE i.tenant_id = %s AND i.name = %s ORDER BY i.status = 'removed', i.id DESC LIMIT 1"
_DEFAULT = f"""{_CHOSEN} JOIN instances_defaultinstance d ON d.instance_id = i.id
WHERE i.tenant_id = %s AND d.project_id = %s"""
_LAST_RESORT = f"""{_CHOSEN}
WHERE i.tenant_id = %s AND (i.provider_name = %s OR i.name = %s) ORDER BY i.status = 'removed', i.id LIMIT 1"""


def _named(project: Project, name: str) -> Instance | None:
    return _only(_NAMED, [project.tenant_id, name])


def _default(project: Project) -> Instance | None:
    return _only(_DEFAULT, [project.tenant_id, project.pk])


def _last_resort(project: Project) -> Instance | None:
    name = settings.EVOLUTION_INSTANCE_NAME
    return _only(_LAST_RESORT, [project.tenant_id, name, name]) if name else None


def _only(statement: str, values: list[Any]) -> Instance | None:
    for row in sql.fetch(statement, values):
        instance = Instance.from_db("default", INSTANCE, row[: len(INSTANCE)])
        instance.lane = Lane.from_db("default", LANE, row[len(INSTANCE) :])
        return instance
    return None
