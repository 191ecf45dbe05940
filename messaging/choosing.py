"""Which instance a message goes out from: the one asked for, else the project's, else the installation's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from accounts.models import Project
from instances import simulating
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


def choose_instances(
    wanted: Collection[tuple[Project, str]],
) -> dict[tuple[int, str], Instance | PilotError]:
    """By (project's id, name), the instance to send from, always one of the project's tenant. An empty name asks for
    the default. A disconnected instance will do: messages wait.

    Where there is none, UnknownInstance, NoInstance or InstanceRemoved, all naming the field `instance`.
    """
    projects = {(project.pk, name): project for project, name in wanted}
    found: dict[tuple[int, str], Instance] = {}
    for look_up in (_named, _defaults, _last_resort):
        missing = {what: project for what, project in projects.items() if what not in found}
        found |= look_up(missing) if missing else {}
    return {what: _chosen(found.get(what), what[1], project) for what, project in projects.items()}


def choose_simulators(projects: Collection[Project], *, now: datetime) -> dict[int, Instance]:
    """By tenant's id, the instance that messages to magic numbers go out from; made where there is none."""
    missing = {project.tenant_id: project for project in projects}
    found = _simulators(missing) if missing else {}
    missing = {tenant_id: project for tenant_id, project in missing.items() if tenant_id not in found}
    for project in missing.values():
        simulating.ensure(project.tenant, now=now)
    return found | (_simulators(missing) if missing else {})


def _simulators(projects: Mapping[int, Project]) -> dict[int, Instance]:
    wanted = [(project.pk, tenant_id) for tenant_id, project in projects.items()]
    instances = [_instance(row) for row in sql.fetch(_SIMULATORS, sql.transposed(wanted))]
    for instance in instances:
        instance.tenant = projects[instance.tenant_id].tenant
    return {instance.tenant_id: instance for instance in instances}


def _chosen(instance: Instance | None, name: str, project: Project) -> Instance | PilotError:
    if instance is None and name:
        return UnknownInstance(
            _("There is no instance of that name."),
            fields={"instance": [_("No instance is called “%(name)s”.") % {"name": name}]},
        )
    if instance is None:
        return NoInstance(
            _("No instance to send from."),
            fields={"instance": [_("Name one, or give the project a default instance.")]},
        )
    if instance.status == InstanceStatus.REMOVED:
        return InstanceRemoved(
            _("The instance was removed."),
            fields={"instance": [_("“%(name)s” was removed.") % {"name": instance.name}]},
        )
    instance.tenant = project.tenant
    return instance


_CHOSEN = f"""
SELECT wanted.project_id, {", ".join(f"i.{name}" for name in INSTANCE)}, {", ".join(f"lane.{name}" for name in LANE)}
"""
# A removed instance's name may have been given to a new one.
_NAMED = f"""{_CHOSEN} FROM unnest(%s::bigint[], %s::bigint[], %s::text[]) AS wanted (project_id, tenant_id, name)
CROSS JOIN LATERAL (
    SELECT * FROM instances_instance WHERE tenant_id = wanted.tenant_id AND name = wanted.name
    ORDER BY status = 'removed', id DESC LIMIT 1) AS i
JOIN instances_lane lane ON lane.instance_id = i.id"""
_DEFAULTS = f"""{_CHOSEN} FROM unnest(%s::bigint[], %s::bigint[]) AS wanted (project_id, tenant_id)
JOIN instances_defaultinstance d ON d.project_id = wanted.project_id
JOIN instances_instance i ON i.id = d.instance_id AND i.tenant_id = wanted.tenant_id
JOIN instances_lane lane ON lane.instance_id = i.id"""
_LAST_RESORT = f"""{_CHOSEN} FROM unnest(%s::bigint[], %s::bigint[], %s::text[]) AS wanted (project_id, tenant_id, name)
CROSS JOIN LATERAL (
    SELECT * FROM instances_instance WHERE tenant_id = wanted.tenant_id AND wanted.name IN (provider_name, name)
    ORDER BY status = 'removed', id LIMIT 1) AS i
JOIN instances_lane lane ON lane.instance_id = i.id"""
_SIMULATORS = f"""{_CHOSEN} FROM unnest(%s::bigint[], %s::bigint[]) AS wanted (project_id, tenant_id)
CROSS JOIN LATERAL (
    SELECT * FROM instances_instance
    WHERE tenant_id = wanted.tenant_id AND provider = 'simulator' AND status <> 'removed' ORDER BY id LIMIT 1) AS i
JOIN instances_lane lane ON lane.instance_id = i.id"""

Projects = Mapping[tuple[int, str], Project]
Found = dict[tuple[int, str], Instance]


def _named(wanted: Projects) -> Found:
    named = [(project.pk, project.tenant_id, name) for (_id, name), project in wanted.items() if name]
    rows = sql.fetch(_NAMED, sql.transposed(named)) if named else []
    instances = [_instance(row) for row in rows]
    return {(row[0], instance.name): instance for row, instance in zip(rows, instances, strict=True)}


def _defaults(wanted: Projects) -> Found:
    unnamed = [(project.pk, project.tenant_id) for (_id, name), project in wanted.items() if not name]
    rows = sql.fetch(_DEFAULTS, sql.transposed(unnamed)) if unnamed else []
    return {(row[0], ""): _instance(row) for row in rows}


def _last_resort(wanted: Projects) -> Found:
    name = settings.EVOLUTION_INSTANCE_NAME
    unnamed = [(project.pk, project.tenant_id, name) for (_id, own), project in wanted.items() if not own]
    rows = sql.fetch(_LAST_RESORT, sql.transposed(unnamed)) if unnamed and name else []
    return {(row[0], ""): _instance(row) for row in rows}


def _instance(row: tuple[Any, ...]) -> Instance:
    instance = Instance.from_db("default", INSTANCE, row[1 : len(INSTANCE) + 1])
    instance.lane = Lane.from_db("default", LANE, row[len(INSTANCE) + 1 :])
    return instance
