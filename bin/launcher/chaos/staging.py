"""Makes the tenants, projects, keys and instances of a run, as the dashboard would. Runs in a process of its own.

    python -m launcher.chaos.staging FILE SANDBOX_URL SANDBOX_KEY

writes {"keys": [raw key of each project], "instances": [[name, name at the provider] of each]} to FILE.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django

from launcher.chaos.schedule import INSTANCES, PROJECTS, TEMPLATE, TENANTS

if TYPE_CHECKING:
    from accounts.models import Project, Tenant
    from instances.models import Instance

SERVERS = 3  # each with a circuit breaker of its own
TEXT = "Aviso {{n}}: seu código é {{codigo}}."
FAST: Mapping[str, float] = {
    "pace_least_seconds": 0,
    "pace_most_seconds": 0,
    "urgent_gap_seconds": 0,
    "typing_ms": 0,
}
# How the ten instances of a tenant send. The first is slower than what is asked of it, so that deadlines pass.
PROFILES: Sequence[Mapping[str, float]] = (
    {"pace_least_seconds": 1.0, "pace_most_seconds": 2.0, "urgent_gap_seconds": 0.5},
    {"pace_least_seconds": 0.05, "pace_most_seconds": 0.2, "urgent_gap_seconds": 0.02},
    {"typing_ms": 50},
    {"concurrency": 1},
    {"concurrency": 1},
    {"concurrency": 2},
    {"concurrency": 2},
    {"concurrency": 3},
    {"concurrency": 5},
    {"concurrency": 5},
)


def main(argv: Sequence[str]) -> None:
    """FILE SANDBOX_URL SANDBOX_KEY."""
    path, url, key = argv
    django.setup()
    _make_servers(url, key)
    tenants = [_make_tenant(number) for number in range(TENANTS)]
    projects = [_make_project(tenants[number * TENANTS // PROJECTS], number) for number in range(PROJECTS)]
    instances = [_make_instance(tenants[n * TENANTS // INSTANCES], n) for n in range(INSTANCES)]
    made = {
        "keys": [_issue_key(project) for project in projects],
        "instances": [[instance.name, instance.provider_name] for instance in instances],
    }
    Path(path).write_text(json.dumps(made))


def _make_servers(url: str, key: str) -> None:
    from instances.models import EvolutionServer

    for number in range(SERVERS):
        EvolutionServer.objects.create(name=f"sandbox {number}", url=url, api_key=key)


def _make_tenant(number: int) -> Tenant:
    from accounts.models import Tenant

    return Tenant.objects.create(name=f"Chaos {number}", slug=f"chaos-{number}")


def _make_project(tenant: Tenant, number: int) -> Project:
    """A project with a template for each category."""
    from accounts.models import Project
    from messaging.models import Category, Template, TemplateVersion

    project = Project.objects.create(tenant=tenant, name=f"Project {number}", slug=f"project-{number}")
    for category in Category.values:
        template = Template.objects.create(
            tenant=tenant, project=project, name=f"{TEMPLATE}_{category}", category=category
        )
        template.current_version = TemplateVersion.objects.create(
            template=template, number=1, content={"text": TEXT}, variables=["codigo", "n"]
        )
        template.save(update_fields=["current_version"])
    return project


def _make_instance(tenant: Tenant, number: int) -> Instance:
    from django.utils import timezone

    from instances import connecting
    from instances.models import Instance

    instance = connecting.create(tenant=tenant, name=f"i{number}", now=timezone.now())
    settings: dict[str, Any] = {**FAST, **PROFILES[number % len(PROFILES)]}
    Instance.objects.filter(pk=instance.pk).update(**settings)
    return instance


def _issue_key(project: Project) -> str:
    from django.utils import timezone

    from accounts import keys
    from accounts.models import Environment, Scope

    scopes = list(Scope.values)
    _key, raw = keys.issue(
        project=project, name="chaos", environment=Environment.LIVE, scopes=scopes, now=timezone.now()
    )
    return raw


if __name__ == "__main__":
    main(sys.argv[1:])
