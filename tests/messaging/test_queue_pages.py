"""The queues page, for a tenant's people and for staff, and what may be done there."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import AuditEntry, Role, Tenant, User
from instances.models import Instance, InstanceHour
from messaging.models import Message, Purge
from messaging.purging import carry_out
from messaging.queue_pages import COLUMNS, SHOWN
from messaging.queues import SORTS
from tests.factories import NOW, make_instance, make_message, make_tenant
from tests.members import make_user, member, signed_in

pytestmark = pytest.mark.django_db

FRAGMENT = {"HX-Request": "true", "HX-Target": "queues"}


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant(name="Padaria")


@pytest.fixture
def browser(tenant: Tenant) -> Client:
    return member(tenant, role=Role.ADMIN)


@pytest.fixture
def instance(tenant: Tenant) -> Instance:
    return make_instance(tenant, name="vendas")


def _staff(*permissions: str) -> Client:
    user = User.objects.create(email="ops@example.com", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return signed_in(user)


def _waits(instance: Instance, count: int = 1, **fields: Any) -> None:
    now = timezone.now()
    for _number in range(count):
        make_message(
            instance=instance, **{"created_at": now, "deliver_until": now + timedelta(hours=1)} | fields
        )


def _text(browser: Client, url: str, **headers: str) -> str:
    response = browser.get(url, headers=headers)
    assert response.status_code == 200
    return html.unescape(response.content.decode())


def _names(page: str) -> list[str]:
    return re.findall(r'id="queue-\d+" href="[^"]+">([^<]+)<', page)


def _post(browser: Client, url: str, **fields: str) -> str:
    return html.unescape(browser.post(url, fields, follow=True).content.decode())


# --- looking ---


@time_machine.travel(NOW)
def test_shows_a_queue(browser: Client, instance: Instance) -> None:
    _waits(instance, 2)
    _waits(instance, next_attempt_at=timezone.now() + timedelta(hours=1))
    InstanceHour.objects.create(instance=instance, hour=NOW, sent=7, failed=3)

    page = _text(browser, "/queues")

    cells = re.findall(r'data-label="([^"]+)">(?:<span>)?([^<]+)', page)
    assert dict(cells)["Queued"] == "2"
    assert dict(cells)["Delayed"] == "1"
    assert dict(cells)["Failed"] == "3"
    assert dict(cells)["Sent per hour"] == "7"
    assert '<svg class="chart" role="img"' in page


def test_shows_a_team_its_own_queues_only(browser: Client, instance: Instance) -> None:
    make_instance(make_tenant(), name="alheia")
    make_instance(instance.tenant, name="apagada", status="removed")

    assert _names(_text(browser, "/queues")) == ["vendas"]


def test_sorts_by_every_column(browser: Client, tenant: Tenant) -> None:
    few, many = make_instance(tenant, name="few"), make_instance(tenant, name="many")
    _waits(few)
    _waits(many, 3)

    assert {name for name, *_rest in COLUMNS} == set(SORTS)
    for sort in SORTS:
        assert len(_names(_text(browser, f"/queues?sort=-{sort}"))) == 2
    assert _names(_text(browser, "/queues")) == ["many", "few"]
    assert _names(_text(browser, "/queues?sort=queued")) == ["few", "many"]
    assert 'aria-sort="descending"' in _text(browser, "/queues?sort=-queued")


@pytest.mark.parametrize("query", ["sort=colour", "sort=--name", "q=%00", "troubled=maybe", f"q={'x' * 99}"])
def test_takes_any_filter(browser: Client, instance: Instance, query: str) -> None:
    assert browser.get(f"/queues?{query}").status_code == 200


def test_narrows_by_name_and_by_trouble(browser: Client, instance: Instance) -> None:
    stuck = make_instance(instance.tenant, name="parada", status="closed")
    _waits(stuck)

    assert _names(_text(browser, "/queues?q=VEND")) == ["vendas"]
    assert _names(_text(browser, "/queues?troubled=on")) == ["parada"]
    assert "Nothing matches" in _text(browser, "/queues?q=nada")


def test_highlights_what_is_over_a_threshold(browser: Client, instance: Instance, settings: Any) -> None:
    settings.ALERT_QUEUE_LENGTH, settings.ALERT_OLDEST = 1, timedelta(minutes=15)
    _waits(instance, created_at=timezone.now() - timedelta(minutes=14))
    assert "above the threshold" not in _text(browser, "/queues")

    _waits(instance, created_at=timezone.now() - timedelta(minutes=16))

    assert _text(browser, "/queues").count("above the threshold") == 2


def test_stays_true_in_its_order_without_the_page_around(browser: Client, instance: Instance) -> None:
    page = _text(browser, "/queues?sort=-failed&q=ven")
    live = re.search(r'<div id="queues" hx-get="([^"]+)".*?"seen": "(\w+)"', page)
    assert live
    assert "sort=-failed" in live[1]
    assert "q=ven" in live[1]

    seen = browser.get(f"{live[1]}&seen={live[2]}", headers=FRAGMENT)
    assert seen.status_code == 204
    _waits(instance)
    fragment = _text(browser, f"{live[1]}&seen={live[2]}", **FRAGMENT)

    assert "<html" not in fragment
    assert _names(fragment) == ["vendas"]


def test_asks_few_questions_for_fifty_instances(browser: Client, tenant: Tenant) -> None:
    for number in range(50):
        _waits(make_instance(tenant, name=f"wa-{number:02d}"))

    with CaptureQueriesContext(connection) as queries:
        assert len(_names(_text(browser, "/queues"))) == 50

    assert len(queries) <= 6, [query["sql"] for query in queries]


def test_shows_the_first_of_very_many(browser: Client, tenant: Tenant) -> None:
    for number in range(SHOWN + 1):
        make_instance(tenant, name=f"wa-{number:03d}")

    page = _text(browser, "/queues?sort=name")

    assert len(_names(page)) == SHOWN
    assert f"The first {SHOWN} of {SHOWN + 1}" in page


def test_offers_viewers_nothing_to_do(instance: Instance) -> None:
    page = _text(member(instance.tenant, role=Role.VIEWER), "/queues")

    assert "/queues/vendas/" not in page


# --- acting ---


@pytest.mark.parametrize("action", ["pause", "resume", "restart", "purge"])
def test_asks_before_it_acts(browser: Client, instance: Instance, action: str) -> None:
    _waits(instance, 3)

    page = _text(browser, f"/queues/vendas/{action}")

    assert "3 messages wait" in page
    assert '<form method="post"' in page
    assert not AuditEntry.objects.exists()


def test_pauses_and_resumes(browser: Client, instance: Instance) -> None:
    assert "Paused: its messages wait" in _post(browser, "/queues/vendas/pause")
    assert "Resumed." in _post(browser, "/queues/vendas/resume")

    assert list(AuditEntry.objects.order_by("id").values_list("action", flat=True)) == [
        "instance.paused",
        "instance.resumed",
    ]


def test_comes_back_to_the_list_as_it_was(browser: Client, instance: Instance) -> None:
    page = _text(browser, "/queues?sort=-oldest&q=ven")
    question = re.search(r'href="(/queues/vendas/pause[^"]*)"', page)
    assert question
    assert 'href="/queues?q=ven&sort=-oldest"' in _text(browser, question[1])

    response = browser.post(question[1])

    assert response.headers["Location"] == f"/queues?q=ven&sort=-oldest#queue-{instance.pk}"


def test_says_that_a_restart_did_not_work(browser: Client, instance: Instance) -> None:
    assert "The provider cannot be reached." in _post(browser, "/queues/vendas/restart")


def test_purges_what_was_shown(browser: Client, instance: Instance) -> None:
    _waits(instance, 2)
    page = _text(browser, "/queues/vendas/purge")
    seen_at = re.search(r'name="seen_at" value="([^"]+)"', page)
    assert "Cancel 2 messages" in page
    assert seen_at
    _waits(instance)  # came while the question was being read

    assert "are being cancelled" in _post(browser, "/queues/vendas/purge", seen_at=seen_at[1])
    assert "Cancelling: 0 of 3" in _text(browser, "/queues")
    assert "already" in _post(browser, "/queues/vendas/purge", seen_at=seen_at[1])
    carry_out(now=timezone.now())

    assert Message.objects.filter(status="cancelled").count() == 2
    assert "Cancelling" not in _text(browser, "/queues")
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target_name) == ("queue.purged", "vendas")


@pytest.mark.parametrize("seen_at", ["", "yesterday", "2026-02-31T12:00:00Z", "2026-01-01T12:00:00"])
def test_takes_now_for_a_moment_that_is_none(browser: Client, instance: Instance, seen_at: str) -> None:
    before = timezone.now()

    _post(browser, "/queues/vendas/purge", seen_at=seen_at)

    assert Purge.objects.get().before >= before


def test_does_nothing_else(browser: Client, instance: Instance) -> None:
    assert browser.post("/queues/vendas/logout").status_code == 404


# --- staff ---


def test_shows_staff_the_queues_of_all(instance: Instance) -> None:
    make_instance(make_tenant(name="Farmacia"), name="alheia")
    staff = _staff("view_instance")

    page = _text(staff, "/ops/queues?sort=name")

    assert _names(page) == ["alheia", "vendas"]
    assert _names(_text(staff, "/ops/queues?q=padaria")) == ["vendas"]
    assert f"/ops/queues/{instance.pk}/pause" not in page


def test_lets_staff_act_in_the_name_of_support(instance: Instance) -> None:
    staff = _staff("view_instance", "change_instance")

    _post(staff, f"/ops/queues/{instance.pk}/pause")

    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.tenant, entry.action) == (
        "ops@example.com",
        instance.tenant,
        "instance.paused",
    )


def test_keeps_others_out(client: Client, tenant: Tenant, instance: Instance) -> None:
    urls = ["/ops/queues", f"/ops/queues/{instance.pk}/pause"]
    assert [client.get(url).status_code for url in urls] == [302, 302]
    assert [member(tenant).get(url).status_code for url in urls] == [403, 403]
    staff = _staff("view_instance")
    assert [staff.get(url).status_code for url in urls] == [200, 403]
    assert signed_in(make_user(tenant)).post(urls[1]).status_code == 403
