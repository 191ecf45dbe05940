"""The page about alerts: one's own, open and past, and how one is told."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Role, Tenant, User
from messaging import alert_pages
from pilot.alerts import raise_alert, recover
from tests.factories import make_tenant
from tests.members import make_user, member, signed_in

pytestmark = pytest.mark.django_db

PAGE = reverse("dashboard:alerts")


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def page(browser: Client, path: str = PAGE) -> str:
    response = browser.get(path)
    assert response.status_code == 200
    return response.content.decode()


def trouble(tenant: Tenant, kind: Any = "instance_down", subject: int = 7, name: str = "vendas") -> None:
    raise_alert(kind, subject, tenant_id=tenant.pk, detail={"name": name, "limit": 9, "reason": "no"})


def test_says_when_nothing_is_wrong(tenant: Tenant) -> None:
    shown = page(member(tenant))

    assert "Nothing needs you" in shown
    assert 'class="strip"' not in page(member(tenant), "/")


def test_shows_what_is_open_and_what_is_over(tenant: Tenant) -> None:
    trouble(tenant, name="vendas")
    trouble(tenant, subject=8, name="suporte")
    recover("instance_down", 8)

    shown = page(member(tenant, role=Role.VIEWER))

    before, _, after = shown.partition("<table")
    assert "“vendas” is disconnected" in before
    assert "“suporte” is disconnected" not in before
    assert "“suporte” is disconnected" in after


def test_shows_nothing_of_another_tenant_nor_of_the_machinery(tenant: Tenant) -> None:
    stranger = make_tenant()
    trouble(stranger, name="alheia")
    trouble(stranger, subject=8, name="alheia")
    recover("instance_down", 8)
    trouble(tenant, "dead_letter", name="stream")
    raise_alert("worker_not_consuming", "worker", detail={"minutes": 3})

    shown = page(member(tenant))

    assert "alheia" not in shown
    assert "Nothing needs you" in shown


def test_says_on_every_page_that_something_is_wrong(tenant: Tenant) -> None:
    trouble(tenant, "queue_too_long", name="fila")
    assert 'class="strip"' not in page(member(tenant), "/messages")

    trouble(tenant, name="vendas")

    shown = page(member(tenant), "/messages")
    assert re.search(r'class="strip".*“vendas” is disconnected.*\+1', shown, re.DOTALL)
    assert re.search(r'class="bell".*<b>2<', shown, re.DOTALL)
    assert 'class="strip"' not in page(member(tenant))


def test_escapes_what_comes_from_elsewhere(tenant: Tenant) -> None:
    trouble(tenant, name="<script>alert(1)</script>")

    assert "<script>alert" not in page(member(tenant))


def test_leads_to_older_ones(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_pages, "PAGE", 2)
    for number in range(5):
        trouble(tenant, subject=number, name=f"wa-{number}")
        recover("instance_down", number, now=timezone.now() + timedelta(seconds=1))
    browser, seen, path = member(tenant), [], PAGE

    while path:
        shown = page(browser, path)
        seen += re.findall(r"“wa-(\d)”", shown)
        older = re.search(r'rel="next" href="([^"]+)"', shown)
        path = f"{PAGE}{older[1]}" if older else ""

    assert seen == ["4", "3", "2", "1", "0"]


@pytest.mark.parametrize("before", ["x", "-1", "9" * 40, "٣"])
def test_takes_any_page_for_the_first(tenant: Tenant, before: str) -> None:
    assert member(tenant).get(PAGE, {"before": before}).status_code == 200


# --- how one is told --------------------------------------------------------------------------------------


@pytest.fixture
def person(tenant: Tenant, settings: Any) -> User:
    settings.ALERT_WHATSAPP_INSTANCE = "nos/avisos"
    return make_user(tenant, role=Role.ADMIN)


def keep(person: User, **fields: str) -> Any:
    path = reverse("dashboard:alert_settings")
    return signed_in(person).post(path, {"alert_language": "en"} | fields, follow=True)


def test_keeps_how_one_wants_to_be_told(person: User) -> None:
    response = keep(person, alert_number="11 99999-0001")

    person.refresh_from_db()
    assert "Saved." in response.content.decode()
    assert (person.alert_number, person.alert_language) == ("+5511999990001", "en")

    keep(person, alert_number="", alert_language="pt-br")
    person.refresh_from_db()
    assert (person.alert_number, person.alert_language) == ("", "pt-br")


@pytest.mark.parametrize(
    "fields", [{"alert_number": "12"}, {"alert_language": "xx"}, {"alert_number": "9" * 99}]
)
def test_says_what_is_wrong_beside_its_field(person: User, fields: dict[str, str]) -> None:
    response = keep(person, **fields)

    person.refresh_from_db()
    assert response.status_code == 200
    assert "errorlist" in response.content.decode()
    assert person.alert_number == ""


def test_asks_for_no_number_that_nobody_would_write_to(person: User, settings: Any) -> None:
    settings.ALERT_WHATSAPP_INSTANCE = ""

    assert "alert_number" not in page(signed_in(person))
    keep(person, alert_number="11 99999-0001")

    person.refresh_from_db()
    assert person.alert_number == ""


def test_changes_nothing_else_of_the_person(person: User) -> None:
    keep(person, is_staff="on", email="root@example.com")

    person.refresh_from_db()
    assert not person.is_staff
    assert person.email != "root@example.com"


def test_offers_those_who_are_not_told_no_settings(tenant: Tenant) -> None:
    assert "How you are told" not in page(member(tenant, role=Role.AGENT))
    assert "How you are told" in page(member(tenant, role=Role.ADMIN))
