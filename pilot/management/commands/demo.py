"""`manage.py demo --state FILE`: a tenant to try Pilot with, on the Evolution server of the settings.

May be repeated: what exists is kept. What a person needs (login, key, number) is written to FILE as JSON.
"""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts import keys
from accounts.models import Environment, Membership, Project, Role, Scope, Tenant, User
from instances import connecting, linking, meta_apps
from instances.models import DefaultInstance, Instance, InstanceStatus
from messaging import opt_ins
from messaging.models import Category, Template, TemplateVersion
from pilot.errors import PilotError

EMAIL = "demo@pilot.localhost"
NUMBER = "+5511999990000"
INSTANCE = "vendas"
META_INSTANCE = "oficial"
TEMPLATE = "pedido_enviado"
TEXT = "Olá, {{nome}}! Seu pedido saiu para entrega. Acompanhe: https://loja.example/{{pedido}}"
VARIABLES = {"nome": "Ana", "pedido": "1042"}
OPEN_WITHIN_SECONDS = 30.0


class Command(BaseCommand):
    help = "Makes a demo tenant with a connected instance, a template, an opt-in and an API key."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--state", type=Path, required=True, help="where to keep login and key (JSON)")
        parser.add_argument("--meta", type=json.loads, help="a number of the Cloud API to link (JSON)")

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["state"]
        state = json.loads(path.read_text()) if path.exists() else {}
        project = _project()
        state |= _login(project.tenant, state) | _key(project, state)
        instance = _instance(project)
        _template(project)
        opt_ins.grant(tenant=project.tenant, number=NUMBER, source="demo", now=timezone.now())
        state |= {"to": NUMBER, "template": TEMPLATE, "variables": VARIABLES, "instance": instance.name}
        state["meta"] = _linked(project, options["meta"]) if options["meta"] else None
        _write_private(path, json.dumps(state, indent=2))
        self.stdout.write(json.dumps(state))


def _project() -> Project:
    tenant, _created = Tenant.objects.get_or_create(slug="demo", defaults={"name": "Loja Demo"})
    project, _created = Project.objects.get_or_create(tenant=tenant, slug="loja", defaults={"name": "Loja"})
    return project


def _login(tenant: Tenant, state: dict[str, Any]) -> dict[str, str]:
    """The demo owner, who is support staff too, so that the admin can be looked at."""
    password = state.get("password") or secrets.token_urlsafe(12)
    user = User.objects.filter(email=EMAIL).first()
    if user is None:
        user = User.objects.create_superuser(EMAIL, password, name="Demo")
    elif not user.check_password(password):
        user.set_password(password)
        user.save(update_fields=["password"])
    Membership.objects.get_or_create(tenant=tenant, user=user, defaults={"role": Role.OWNER})
    return {"email": EMAIL, "password": password}


def _key(project: Project, state: dict[str, Any]) -> dict[str, str]:
    now = timezone.now()
    if raw := state.get("api_key"):
        try:
            keys.authenticate(raw, now=now)
        except keys.InvalidKey:
            raw = ""
    if not raw:
        _row, raw = keys.issue(
            project=project, name="demo", environment=Environment.LIVE, scopes=list(Scope.values), now=now
        )
    return {"api_key": raw}


def _instance(project: Project) -> Instance:
    """An open instance. Its pace is short, because the sandbox has no people behind it."""
    instance = Instance.objects.filter(tenant=project.tenant, name=INSTANCE).first()
    try:
        if instance is None:
            instance = connecting.create(tenant=project.tenant, name=INSTANCE, now=timezone.now())
            pace = {"pace_least_seconds": 1, "pace_most_seconds": 3, "urgent_gap_seconds": 1}
            Instance.objects.filter(pk=instance.pk).update(**pace)
        if instance.status != InstanceStatus.OPEN:
            connecting.pair(instance=instance, now=timezone.now())
    except PilotError as error:
        raise CommandError(f"The demo instance could not be connected: {error.message}") from error
    DefaultInstance.objects.get_or_create(project=project, defaults={"instance": instance})
    _wait_until_open(instance)
    return instance


def _linked(project: Project, number: dict[str, str]) -> dict[str, str]:
    """The number of the Cloud API, linked; with what is to be entered at Meta."""
    instance = Instance.objects.filter(tenant=project.tenant, name=META_INSTANCE).first()
    try:
        if instance is None:
            now = timezone.now()
            instance = linking.link_number(tenant=project.tenant, name=META_INSTANCE, now=now, **number)
    except PilotError as error:
        raise CommandError(f"The demo number could not be linked: {error.message}") from error
    callback = meta_apps.callback_of(instance)
    assert callback is not None
    return {"instance": instance.name, "url": callback.url, "verify_token": callback.verify_token}


def _wait_until_open(instance: Instance) -> None:
    until = time.monotonic() + OPEN_WITHIN_SECONDS
    while time.monotonic() < until:
        instance.refresh_from_db()
        if instance.status == InstanceStatus.OPEN:
            return
        time.sleep(0.2)
    raise CommandError(f"The demo instance is still {instance.status} after {OPEN_WITHIN_SECONDS:.0f} s.")


def _template(project: Project) -> None:
    template, created = Template.objects.get_or_create(
        project=project, name=TEMPLATE, defaults={"tenant": project.tenant, "category": Category.UTILITY}
    )
    if created:
        template.current_version = TemplateVersion.objects.create(
            template=template, number=1, content={"text": TEXT}, variables=sorted(VARIABLES)
        )
        template.save(update_fields=["current_version"])


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
