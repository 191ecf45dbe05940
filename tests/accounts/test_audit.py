"""The audit log: every change has its entry, entries stay as they are, and each team sees its own."""

from __future__ import annotations

import html
import re
from typing import Any
from uuid import uuid4

import pytest
from django.db import DatabaseError, transaction
from django.test import Client
from django.utils import timezone

from accounts import audit
from accounts.audit_pages import PAGE
from accounts.models import Action, ApiKey, AuditEntry, Role, Tenant, User
from tests.factories import make_instance, make_key, make_project, make_server, make_tenant
from tests.members import make_user, member, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


@pytest.fixture
def person(tenant: Tenant) -> User:
    return make_user(tenant, role=Role.ADMIN)


@pytest.fixture
def browser(person: User) -> Client:
    return signed_in(person)


def _record(tenant: Tenant | None, **fields: Any) -> AuditEntry:
    values = {"actor": "system", "action": "instance.paused", "target": tenant or make_tenant()} | fields
    return audit.record(tenant=tenant, **values)


def _entries() -> list[tuple[str, str]]:
    return list(AuditEntry.objects.order_by("id").values_list("action", "target_name"))


# --- recording ---


def test_names_a_person_a_key_and_pilot_itself(tenant: Tenant, person: User) -> None:
    key, _raw = make_key(make_project(tenant))

    entries = [_record(tenant, actor=actor) for actor in (person, key, "system")]

    assert [entry.actor for entry in entries] == [person.email, f"{key.prefix}…", "system"]
    assert [(entry.user, entry.key) for entry in entries] == [(person, None), (None, key), (None, None)]


def test_refuses_an_action_that_is_not_on_the_list(tenant: Tenant) -> None:
    with pytest.raises(ValueError, match="exploded"):
        _record(tenant, action="instance.exploded")


def test_keeps_no_secret(tenant: Tenant) -> None:
    entry = _record(tenant, detail={"count": 3, "new": {"api_key": "a"}, "all": [{"password": "b"}]})

    assert entry.detail == {"count": 3, "new": {"api_key": "***"}, "all": [{"password": "***"}]}


@pytest.mark.parametrize("change", [{"actor": "somebody else"}, {"detail": {}}, {"at": timezone.now()}])
def test_never_changes_an_entry(tenant: Tenant, change: dict[str, Any]) -> None:
    entry = _record(tenant, detail={"count": 3})

    with pytest.raises(DatabaseError), transaction.atomic():
        AuditEntry.objects.filter(pk=entry.pk).update(**change)


def test_outlives_who_it_is_about(tenant: Tenant, person: User) -> None:
    instance = make_instance(tenant, name="vendas")
    entry = _record(tenant, actor=person, target=instance)
    email = person.email

    instance.delete()
    person.delete()

    entry.refresh_from_db()
    assert (entry.user, entry.actor, entry.target_name) == (None, email, "vendas")


def test_has_a_word_for_every_action() -> None:
    assert all(re.fullmatch(r"[a-z_]+\.[a-z_]+", action) for action in Action.values)


# --- what the dashboard records ---


def test_records_the_life_of_a_key(browser: Client, tenant: Tenant, person: User) -> None:
    project = make_project(tenant)
    form = {"name": "crm", "project": project.pk, "environment": "live", "once": uuid4()}
    browser.post("/new-key", form | {"scopes": ["messages:read"]}, headers={"x-request-id": "abc"})
    key = ApiKey.objects.get()
    browser.post(f"/keys/{key.prefix}/rotate", {"overlap": "3600"})
    successor = ApiKey.objects.exclude(pk=key.pk).get()
    browser.post(f"/keys/{successor.prefix}/revoke")
    browser.post(f"/keys/{successor.prefix}/revoke")

    assert _entries() == [
        ("key.issued", str(key)),
        ("key.rotated", str(key)),
        ("key.revoked", str(successor)),
    ]
    first = AuditEntry.objects.earliest("id")
    assert (first.user, first.tenant, first.request_id) == (person, tenant, "abc")
    assert first.detail["scopes"] == ["messages:read"]


def test_records_a_pause_once(browser: Client, tenant: Tenant) -> None:
    make_instance(tenant, name="vendas")

    for action in ("pause", "pause", "resume"):
        browser.post(f"/instances/vendas/{action}")

    assert _entries() == [("instance.paused", "vendas"), ("instance.resumed", "vendas")]


def test_does_not_record_what_did_not_work(browser: Client, tenant: Tenant) -> None:
    make_instance(tenant, name="vendas", server=make_server(url="http://127.0.0.1:9"))

    browser.post("/instances/vendas/restart")

    assert _entries() == []


# --- the page ---


def test_shows_a_team_its_own_entries(browser: Client, tenant: Tenant) -> None:
    _record(tenant, target=make_instance(tenant, name="vendas"), detail={"count": 3, "all": ["a", "b"]})
    _record(make_tenant(), target=make_instance(name="alheia"))

    page = html.unescape(browser.get("/audit").content.decode())

    assert "Instance paused" in page
    assert "Pilot itself" in page
    assert "vendas" in page
    assert "count: 3" in page
    assert "all: a, b" in page
    assert "alheia" not in page


def test_pages_through_the_entries(browser: Client, tenant: Tenant) -> None:
    for number in range(PAGE + 1):
        _record(tenant, actor="system", detail={"number": number})

    page = browser.get("/audit").content.decode()
    older = re.search(r'href="(\?before=\d+)"', page)
    assert older
    rest = browser.get(f"/audit{older[1]}").content.decode()

    assert page.count("number: ") == PAGE
    assert re.findall(r"number: (\d+)", rest) == ["0"]


@pytest.mark.parametrize("before", ["", "x", "-1", "9" * 40, "%00"])
def test_takes_any_place_for_the_start(browser: Client, tenant: Tenant, before: str) -> None:
    _record(tenant)

    assert browser.get(f"/audit?before={before}").status_code == 200


def test_is_for_administrators(tenant: Tenant) -> None:
    assert member(tenant, role=Role.AGENT).get("/audit").status_code == 403
