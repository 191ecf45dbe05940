"""Rows for tests: plain functions, every default visible."""

from __future__ import annotations

import hashlib
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

from accounts import keys
from accounts.models import ApiKey, Environment, Project, Tenant
from instances.models import DefaultInstance, EvolutionServer, Instance, InstanceStatus, Lane
from messaging.models import Message, OptIn, Template, TemplateVersion

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
_numbers = itertools.count(1)


def make_tenant(**fields: Any) -> Tenant:
    number = next(_numbers)
    return Tenant.objects.create(**{"name": f"Loja {number}", "slug": f"loja-{number}"} | fields)


def make_project(tenant: Tenant | None = None, **fields: Any) -> Project:
    number = next(_numbers)
    values = {"tenant": tenant or make_tenant(), "name": f"App {number}", "slug": f"app-{number}"}
    return Project.objects.create(**values | fields)


def make_key(
    project: Project | None = None, *, scopes: list[str] | None = None, **fields: Any
) -> tuple[ApiKey, str]:
    """An API key with every scope unless told otherwise, and its raw form."""
    from accounts.models import Scope

    values = {"name": "test", "environment": Environment.LIVE, "now": NOW} | fields
    return keys.issue(project=project or make_project(), scopes=scopes or list(Scope.values), **values)


def make_server(**fields: Any) -> EvolutionServer:
    number = next(_numbers)
    values = {"name": f"evo-{number}", "url": "http://127.0.0.1:9", "api_key": "global-key"}
    return EvolutionServer.objects.create(**values | fields)


def make_instance(tenant: Tenant | None = None, **fields: Any) -> Instance:
    """An open instance without pace, so that tests need not wait."""
    number = next(_numbers)
    token = f"hook-{number}"
    values = {
        "tenant": tenant or make_tenant(),
        "name": f"wa-{number}",
        "provider_name": f"p-{number}-test",
        "hook_token": token,
        "hook_digest": hashlib.sha256(token.encode()).hexdigest(),
        "status": InstanceStatus.OPEN,
        "status_changed_at": NOW - timedelta(hours=1),
        "pace_least_seconds": 0,
        "pace_most_seconds": 0,
        "urgent_gap_seconds": 0,
        "typing_ms": 0,
    } | fields
    if "server" not in values:
        values["server"] = make_server()
    instance = Instance.objects.create(**values)
    Lane.objects.create(
        instance=instance, next_send_at=NOW - timedelta(hours=1), next_urgent_at=NOW - timedelta(hours=1)
    )
    return instance


def make_template(
    project: Project,
    *,
    name: str = "pedido_enviado",
    text: str = "Olá {{nome}}, seu pedido saiu.",
    **fields: Any,
) -> Template:
    """A published template with one version whose only variable is {{nome}} unless told otherwise."""
    import re

    template = Template.objects.create(
        tenant=project.tenant, project=project, name=name, **{"category": "utility"} | fields
    )
    variables = sorted(set(re.findall(r"\{\{\s*(\w+)\s*\}\}", text)))
    template.current_version = TemplateVersion.objects.create(
        template=template, number=1, content={"text": text}, variables=variables
    )
    template.save(update_fields=["current_version"])
    return template


def make_opt_in(tenant: Tenant, number: str = "+5511999990000", **fields: Any) -> OptIn:
    values = {"source": "test", "granted_at": NOW} | fields
    return OptIn.objects.create(tenant=tenant, number=number, **values)


def make_sender() -> tuple[ApiKey, str]:
    """A key, and its raw form, of a project that can send: default instance, template and a recipient who agreed."""
    project = make_project()
    DefaultInstance.objects.create(project=project, instance=make_instance(project.tenant))
    make_opt_in(project.tenant)
    make_template(project)
    return make_key(project)


def make_message(project: Project | None = None, instance: Instance | None = None, **fields: Any) -> Message:
    """A queued message that is ready now and has an hour to go (from NOW)."""
    project = project or make_project(instance.tenant if instance else None)
    instance = instance or make_instance(project.tenant)
    values = {
        "tenant": project.tenant,
        "project": project,
        "instance": instance,
        "environment": Environment.LIVE,
        "to": "+5511999990000",
        "category": "utility",
        "content": {"text": "Olá"},
        "created_at": NOW,
        "deliver_until": NOW + timedelta(hours=1),
    }
    return Message.objects.create(**values | fields)
