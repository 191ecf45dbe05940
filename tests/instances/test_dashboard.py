"""The pages about instances, on a running sandbox."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import pytest
import segno
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import Role, Tenant
from instances.history import ICONS, TITLES
from instances.models import Instance, InstanceEvent, InstanceStatus
from tests.factories import make_instance, make_message, make_server, make_tenant
from tests.members import member
from tests.sandbox.emulator import Emulator, eventually
from tests.sandboxes import server_of

DRAWING = re.compile(r'<svg[^>]*class="qr".*?</svg>', re.DOTALL)
pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


@pytest.fixture
def browser(tenant: Tenant) -> Client:
    return member(tenant, role=Role.ADMIN)


@pytest.fixture
def created(sandbox: Emulator, browser: Client, tenant: Tenant) -> Instance:
    """An instance that was made on the page, and is waiting for its code to be scanned."""
    server_of(sandbox)
    browser.post("/new-instance", {"name": "vendas"})
    return Instance.objects.get(tenant=tenant)


def _text(browser: Client, url: str) -> str:
    response = browser.get(url)
    assert response.status_code == 200
    return html.unescape(response.content.decode())


def _post(browser: Client, url: str, **fields: str) -> str:
    """The page after the action."""
    return html.unescape(browser.post(url, fields, follow=True).content.decode())


def _drawing(page: str) -> str:
    found = DRAWING.search(page)
    assert found
    return found[0]


def _waiting(tenant: Tenant, **fields: object) -> Instance:
    code = {"qr_code": "2@abc", "qr_expires_at": timezone.now() + timedelta(seconds=40)}
    return make_instance(tenant, name="vendas", status="connecting", **code | fields)


# --- the list ---


def test_lists_the_instances_of_the_tenant(browser: Client, tenant: Tenant) -> None:
    make_instance(tenant, name="vendas", number="+5511987654321", pace_least_seconds=30, pace_most_seconds=46)
    make_instance(tenant, name="apagada", status="removed")
    make_instance(name="alheia")

    page = _text(browser, "/instances")

    for said in ("vendas", "+55 11 98765-4321", "one every 30–46 s", "Connected"):
        assert said in page
    assert "apagada" not in page
    assert "alheia" not in page


def test_counts_the_queue_of_each_instance(browser: Client, tenant: Tenant) -> None:
    busy, idle = make_instance(tenant, name="busy"), make_instance(tenant, name="idle")
    for fields in ({}, {"next_attempt_at": timezone.now()}, {"status": "delivered"}):
        make_message(instance=busy, **fields)
    make_message(instance=idle, status="sending")

    assert re.findall(r"In the queue</dt><dd>(\d+)", _text(browser, "/instances")) == ["2", "0"]


def test_lists_many_instances_in_few_queries(browser: Client, tenant: Tenant) -> None:
    for _number in range(20):
        make_instance(tenant)

    with CaptureQueriesContext(connection) as queries:
        browser.get("/instances")

    assert len(queries) <= 8, [query["sql"] for query in queries]


def test_offers_no_buttons_to_viewers(tenant: Tenant) -> None:
    make_instance(tenant, name="vendas")
    viewer = member(tenant, role=Role.VIEWER)

    for url in ("/instances", "/instances/vendas"):
        main = _text(viewer, url).partition("<main")[2].partition("</main>")[0]
        assert "<form" not in main


# --- connecting ---


def test_creates_an_instance_and_shows_its_code(
    sandbox: Emulator, browser: Client, created: Instance
) -> None:
    page = _text(browser, "/instances/vendas")

    created.refresh_from_db()
    assert created.status == "connecting"
    assert (
        segno.make_qr(created.qr_code, error="l").svg_inline(
            border=4, omitsize=True, svgclass="qr", lineclass=None
        )
        in page
    )
    assert "Linked devices" in page
    assert sandbox.state(created.provider_name) == "connecting"


def test_connects_by_a_code_that_is_typed(sandbox: Emulator, browser: Client, created: Instance) -> None:
    assert "Stopped." in _post(browser, "/instances/vendas/stop")
    eventually(lambda: sandbox.state(created.provider_name) == "close")

    page = _post(browser, "/instances/vendas/pair", number="(11) 98765-4321")

    assert re.search(r"<code>\w{4}-\w{4}</code>", page)


@pytest.mark.parametrize("number", ["", "123", "not a number", "+5511", "\x00"])
def test_refuses_what_is_no_number(browser: Client, tenant: Tenant, number: str) -> None:
    make_instance(tenant, name="vendas", status="closed")

    page = _post(browser, "/instances/vendas/pair", number=number)

    assert "errorlist" in page
    assert Instance.objects.get().status == "closed"


@pytest.mark.parametrize("name", ["", "with space", "a/b", "ação", "x" * 61])
def test_refuses_names_that_do_not_fit_an_address(browser: Client, name: str) -> None:
    make_server()

    assert "errorlist" in _post(browser, "/new-instance", name=name)
    assert not Instance.objects.exists()


def test_refuses_a_name_twice(browser: Client, created: Instance) -> None:
    assert "There is an instance of that name." in _post(browser, "/new-instance", name="vendas")


def test_says_that_no_server_has_room(browser: Client) -> None:
    assert "No Evolution server has room" in _post(browser, "/new-instance", name="vendas")


def test_says_that_the_provider_cannot_be_reached(browser: Client) -> None:
    make_server(url="http://127.0.0.1:9")

    page = _post(browser, "/new-instance", name="vendas")

    assert "The provider cannot be reached." in page
    assert "Could not be created at the provider" in page


def test_counts_down_and_hides_a_code_that_is_over(browser: Client, tenant: Tenant) -> None:
    instance = _waiting(tenant)
    assert re.search(r"good for (39|40) seconds more", _text(browser, "/instances/vendas"))

    Instance.objects.filter(pk=instance.pk).update(qr_expires_at=timezone.now())

    page = _text(browser, "/instances/vendas")
    assert '<svg class="qr"' not in page
    assert "Waiting for the provider's next code." in page


def test_shows_the_next_code_by_itself(browser: Client, tenant: Tenant) -> None:
    instance = _waiting(tenant)
    url = "/instances/vendas/connection?shown=connecting-running"
    before = _text(browser, url)

    Instance.objects.filter(pk=instance.pk).update(qr_code="2@another")

    after = _text(browser, url)
    assert _drawing(before) != _drawing(after)


def test_reloads_the_page_when_its_buttons_change(browser: Client, tenant: Tenant) -> None:
    instance = _waiting(tenant)
    shown = re.search(r'hx-get="([^"]+)"', _text(browser, "/instances/vendas"))
    assert shown
    assert "HX-Refresh" not in browser.get(shown[1]).headers

    Instance.objects.filter(pk=instance.pk).update(status="open")

    assert browser.get(shown[1]).headers["HX-Refresh"] == "true"


# --- afterwards ---


def test_restarts_unlinks_and_removes(sandbox: Emulator, browser: Client, created: Instance) -> None:
    sandbox.do(created.provider_name, "pair")
    _post(browser, "/instances/vendas/pair")

    assert "The instance is restarting." in _post(browser, "/instances/vendas/restart")
    assert "The number was unlinked." in _post(browser, "/instances/vendas/logout")
    assert "The instance was removed." in _post(browser, "/instances/vendas/remove")
    assert sandbox.api.get(f"/instance/connectionState/{created.provider_name}").status_code == 404


def test_asks_before_it_removes(browser: Client, tenant: Tenant) -> None:
    instance = make_instance(tenant, name="vendas")
    make_message(instance=instance)

    page = _text(browser, "/instances/vendas/remove")

    assert "1 message that waits on it will fail." in page
    assert Instance.objects.get().status == "open"


def test_pauses_and_resumes(browser: Client, tenant: Tenant) -> None:
    make_instance(tenant, name="vendas")

    assert "Paused: its messages wait" in _post(browser, "/instances/vendas/pause")
    assert Instance.objects.get().paused

    assert "Resumed." in _post(browser, "/instances/vendas/resume")
    assert not Instance.objects.get().paused
    assert list(InstanceEvent.objects.values_list("kind", flat=True)) == ["paused", "resumed"]


def test_notes_a_pause_once(browser: Client, tenant: Tenant) -> None:
    make_instance(tenant, name="vendas", paused=True)

    _post(browser, "/instances/vendas/pause")

    assert not InstanceEvent.objects.exists()


def test_knows_no_other_actions(browser: Client, tenant: Tenant) -> None:
    make_instance(tenant, name="vendas")

    assert browser.post("/instances/vendas/explode").status_code == 404


def test_has_words_for_every_status() -> None:
    assert set(InstanceStatus) <= set(TITLES)
    assert set(ICONS) <= set(TITLES)
