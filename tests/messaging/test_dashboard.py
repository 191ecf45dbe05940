"""The pages about messages: today's figures, the list and its filters, one message and its timeline."""

from __future__ import annotations

import html
import re
from datetime import datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import Project, Role
from instances.models import Instance
from messaging.dashboard import PAGE, today
from messaging.models import Message, MessageEvent
from tests.factories import NOW, make_instance, make_message, make_project, make_template, make_tenant
from tests.members import member

pytestmark = pytest.mark.django_db

FEW = 12


@pytest.fixture(autouse=True)
def _at_noon() -> Any:
    with time_machine.travel(NOW, tick=False):
        yield


@pytest.fixture
def project() -> Project:
    return make_project(make_tenant(time_zone="America/Sao_Paulo"))


@pytest.fixture
def instance(project: Project) -> Instance:
    return make_instance(project.tenant, name="vendas")


@pytest.fixture
def browser(project: Project) -> Client:
    return member(project.tenant, role=Role.VIEWER)


def _text(browser: Client, url: str, **query: Any) -> str:
    response = browser.get(url, query)
    assert response.status_code == 200
    return html.unescape(response.content.decode())


def _ids(browser: Client, **query: Any) -> list[str]:
    return re.findall(r'id="row-([^"]+)"', _text(browser, "/messages", **query))


# --- the list ---


def test_lists_the_newest_first(browser: Client, project: Project, instance: Instance) -> None:
    for number, age in ((1, 3), (2, 1), (3, 2)):
        make_message(project, instance, id=f"m{number}", created_at=NOW - timedelta(minutes=age))

    assert _ids(browser) == ["m2", "m3", "m1"]


def test_lists_nothing_of_another_tenant(browser: Client) -> None:
    make_message()

    assert _ids(browser) == []


def test_says_what_to_do_when_there_is_nothing(browser: Client) -> None:
    assert "Connect an instance" in _text(browser, "/messages")


def test_shows_test_messages_apart(browser: Client, project: Project, instance: Instance) -> None:
    make_message(project, instance, id="live")
    make_message(project, instance, id="test", environment="test")

    assert _ids(browser) == ["live"]
    assert _ids(browser, environment="test") == ["test"]


@pytest.mark.parametrize("wanted", ["queued", "failed"])
def test_narrows_by_status(browser: Client, project: Project, instance: Instance, wanted: str) -> None:
    make_message(project, instance, id="queued")
    make_message(project, instance, id="failed", status="failed", failure_code="expired")

    assert _ids(browser, status=wanted) == [wanted]


def test_narrows_by_template_and_instance(browser: Client, project: Project, instance: Instance) -> None:
    template = make_template(project)
    make_message(project, instance, id="m1", template_version=template.current_version)
    make_message(project, make_instance(project.tenant), id="m2")

    assert _ids(browser, template=template.pk) == ["m1"]
    assert _ids(browser, instance=instance.pk) == ["m1"]


def test_ignores_the_instance_of_another_tenant(
    browser: Client, project: Project, instance: Instance
) -> None:
    make_message(project, instance, id="m1")

    page = _text(browser, "/messages", instance=make_instance().pk)

    assert "Select a valid choice" in page
    assert "row-m1" in page


@pytest.mark.parametrize(
    ("created_at", "shown"),
    [
        ("2026-11-28T02:59:59+00:00", False),
        ("2026-11-28T03:00:00+00:00", True),
        ("2026-11-29T02:59:59+00:00", True),
        ("2026-11-29T03:00:00+00:00", False),
    ],
)
def test_narrows_by_days_of_the_tenant(
    browser: Client, project: Project, instance: Instance, created_at: str, shown: bool
) -> None:
    make_message(project, instance, id="m1", created_at=datetime.fromisoformat(created_at))

    assert _ids(browser, since="2026-11-28", until="2026-11-28") == ["m1"] * shown


@pytest.mark.parametrize(
    "q", ["+5511987654321", "(11) 98765-4321", "11987654321", "4321", "m-exact", "3EB0AB"]
)
def test_finds_by_number_and_by_id(browser: Client, project: Project, instance: Instance, q: str) -> None:
    make_message(project, instance, id="m-exact", to="+5511987654321", provider_message_id="3EB0AB")
    make_message(project, instance, id="other", to="+5511900000000")

    assert _ids(browser, q=q) == ["m-exact"]


def test_looks_back_a_month_for_a_part_of_a_number(
    browser: Client, project: Project, instance: Instance
) -> None:
    make_message(project, instance, id="old", created_at=NOW - timedelta(days=31))

    page = _text(browser, "/messages", q="99999")
    assert "last 30 days" in page
    assert "row-old" not in page
    assert _ids(browser, q="99999", since="2026-10-01") == ["old"]


@pytest.mark.parametrize(
    "query",
    [
        {"status": "x"},
        {"template": "x"},
        {"instance": "-1"},
        {"since": "2026-99-99"},
        {"environment": "x"},
        {"before": "x"},
    ],
)
def test_narrows_nothing_by_nonsense(
    browser: Client, project: Project, instance: Instance, query: dict[str, str]
) -> None:
    make_message(project, instance, id="m1")

    assert _ids(browser, **query) == ["m1"]


@pytest.mark.parametrize("q", ["\x00", "'; DROP TABLE", "%", "++++", "<script>alert(1)</script>"])
def test_survives_hostile_searches(browser: Client, project: Project, instance: Instance, q: str) -> None:
    response = browser.get("/messages", {"q": q})

    assert response.status_code == 200
    assert "<script>alert" not in response.content.decode()


def test_pages_through_messages_of_one_moment_without_loss(
    browser: Client, project: Project, instance: Instance
) -> None:
    wanted = {make_message(project, instance).id for _number in range(2 * PAGE + 3)}

    seen: list[str] = []
    url: str | None = "/messages"
    while url:
        page = _text(browser, url)
        seen += re.findall(r'id="row-([^"]+)"', page)
        older = re.search(r'rel="next" href="([^"]+)"', page)
        url = older and older[1]

    assert len(seen) == len(wanted)
    assert set(seen) == wanted


def test_keeps_the_filters_while_paging(browser: Client, project: Project, instance: Instance) -> None:
    for _number in range(PAGE + 1):
        make_message(project, instance)

    assert re.search(
        r'rel="next" href="/messages\?status=queued&before=', _text(browser, "/messages", status="queued")
    )


def test_lists_in_few_queries(browser: Client, project: Project, instance: Instance) -> None:
    version = make_template(project).current_version
    for _number in range(20):
        make_message(project, instance, template_version=version)

    with CaptureQueriesContext(connection) as queries:
        assert len(_ids(browser)) == 20

    assert len(queries) <= FEW, [query["sql"] for query in queries]


def test_answers_only_the_rows_to_htmx(browser: Client, project: Project, instance: Instance) -> None:
    make_message(project, instance, id="m1")

    part = browser.get("/messages", headers={"HX-Request": "true", "HX-Target": "messages"}).content.decode()

    assert "row-m1" in part
    assert "<html" not in part


def test_says_nothing_new_while_the_rows_stay(browser: Client, project: Project, instance: Instance) -> None:
    message = make_message(project, instance)
    headers = {"HX-Request": "true", "HX-Target": "messages"}
    seen = re.search(r'"seen": "(\w+)"', browser.get("/messages").content.decode())
    assert seen

    assert browser.get("/messages", {"seen": seen[1]}, headers=headers).status_code == 204

    Message.objects.filter(pk=message.pk).update(status="sent")
    assert browser.get("/messages", {"seen": seen[1]}, headers=headers).status_code == 200


def test_stops_asking_when_nothing_moves(browser: Client, project: Project, instance: Instance) -> None:
    make_message(project, instance, status="delivered")

    assert "every 5s" not in _text(browser, "/messages")


def test_says_why_a_message_failed(browser: Client, project: Project, instance: Instance) -> None:
    make_message(project, instance, status="failed", failure_code="not_on_whatsapp")

    assert "The number is not on WhatsApp." in _text(browser, "/messages")


# --- one message ---


def test_shows_one_message(browser: Client, project: Project, instance: Instance) -> None:
    content = {
        "text": "Olá *Ana*\nlinha <2>",
        "title": "Pedido",
        "footer": "Loja",
        "buttons": [{"kind": "reply", "label": "Sim", "value": "1"}],
    }
    message = make_message(
        project, instance, content=content, template_version=make_template(project).current_version
    )

    page = browser.get(f"/messages/{message.id}").content.decode()

    assert "Olá <strong>Ana</strong><br>linha &lt;2&gt;" in page
    for said in ("Pedido", "Loja", "Sim", "+55 11 99999-0000", "pedido_enviado", message.id):
        assert said in page


def test_tells_its_story_in_order(browser: Client, project: Project, instance: Instance) -> None:
    message = make_message(project, instance, status="delivered")
    for seconds, kind in ((0, "queued"), (1, "sending"), (2, "submitted"), (75, "delivered")):
        MessageEvent.objects.create(
            message=message, tenant=project.tenant, kind=kind, at=NOW + timedelta(seconds=seconds)
        )

    page = _text(browser, f"/messages/{message.id}")

    titles = [
        "Accepted into the queue",
        "Handed to the provider",
        "Taken over by the provider",
        "Delivered to the phone",
    ]
    assert re.findall("|".join(titles), page) == titles
    assert "+1 min 15 s" in page


def test_says_why_it_waits_and_for_how_long(browser: Client, project: Project, instance: Instance) -> None:
    message = make_message(project, instance)
    assert "Number 1 in the queue. Expected to go out:" in _text(browser, f"/messages/{message.id}")

    Instance.objects.update(paused=True)

    assert "The instance is paused." in _text(browser, f"/messages/{message.id}")


def test_watches_a_message_until_it_is_settled(browser: Client, project: Project, instance: Instance) -> None:
    message = make_message(project, instance)
    assert "every 2s" in _text(browser, f"/messages/{message.id}")

    Message.objects.filter(pk=message.pk).update(status="delivered")

    progress = _text(browser, f"/messages/{message.id}/progress")
    assert "Delivered" in progress
    assert "every" not in progress


def test_shows_one_message_in_few_queries(browser: Client, project: Project, instance: Instance) -> None:
    message = make_message(project, instance)
    for _number in range(10):
        MessageEvent.objects.create(message=message, tenant=project.tenant, kind="queued", at=NOW)

    with CaptureQueriesContext(connection) as queries:
        browser.get(f"/messages/{message.id}")

    assert len(queries) <= FEW, [query["sql"] for query in queries]


# --- today ---


def test_counts_what_became_of_todays_messages(project: Project, instance: Instance) -> None:
    for status in ("queued", "sending", "sent", "delivered", "read", "played", "cancelled"):
        make_message(project, instance, status=status)
    make_message(project, instance, status="failed", failure_code="expired")
    make_message(project, instance, status="delivered", created_at=NOW - timedelta(days=1))
    make_message(project, instance, created_at=NOW - timedelta(days=1))
    make_message(project, instance, environment="test")
    make_message()

    assert today(project.tenant) == {"accepted": 8, "delivered": 3, "failed": 1, "waiting": 2}


def test_begins_the_day_where_the_tenant_is(browser: Client, project: Project, instance: Instance) -> None:
    make_message(project, instance, created_at=datetime.fromisoformat("2026-11-29T02:59:59+00:00"))
    make_message(project, instance, created_at=datetime.fromisoformat("2026-11-29T03:00:00+00:00"))

    assert re.search(r"<strong>1</strong>\s*accepted", _text(browser, "/"))


def test_names_the_instances_that_do_not_send(browser: Client, project: Project, instance: Instance) -> None:
    assert "Every instance is connected." in _text(browser, "/")

    make_instance(project.tenant, name="fechada", status="closed", status_reason="logged_out")
    make_instance(project.tenant, name="apagada", status="removed")

    page = _text(browser, "/")
    assert "fechada" in page
    assert "No phone is linked to it." in page
    assert "apagada" not in page
    assert "vendas" not in page


@pytest.mark.parametrize("day", ["9999-12-31", "0001-01-01"])
def test_takes_the_first_and_the_last_day_of_the_calendar(browser: Client, day: str) -> None:
    for name in ("since", "until"):
        assert browser.get("/messages", {name: day}).status_code == 200
