"""The dashboard's pages about webhooks."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import AuditEntry, Project, Role
from tests.factories import make_project, make_tenant
from tests.members import member
from tests.webhooks.tellings import make_endpoint, tell
from webhooks import signing
from webhooks.models import WebhookDelivery, WebhookEndpoint, WebhookReplay

pytestmark = pytest.mark.django_db

URL = "https://example.com/pilot"
SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]{40,}")


@pytest.fixture
def project() -> Project:
    return make_project(name="Loja")


@pytest.fixture
def browser(project: Project) -> Client:
    return member(project.tenant, role=Role.ADMIN)


@pytest.fixture
def endpoint(project: Project) -> WebhookEndpoint:
    return make_endpoint(project.tenant, url=URL, description="CRM", headers={"X-Api-Key": "sekret"})


def text(response: Any) -> str:
    assert response.status_code == 200
    return html.unescape(response.content.decode())


def filled(**fields: Any) -> dict[str, Any]:
    return {"url": URL, "description": "CRM", "environment": "live", "once": uuid4()} | fields


# --- making ---


def test_makes_a_webhook_and_shows_its_secret_once(browser: Client, project: Project) -> None:
    form = filled(types=["message.read"], headers="X-Api-Key: a:b\n\n", project=project.pk)

    response = browser.post("/new-webhook", form)

    (shown,) = set(SECRET.findall(text(response)))
    made = WebhookEndpoint.objects.get()
    assert [each["secret"] for each in made.secrets] == [shown]
    assert (made.tenant, made.project, made.environment) == (project.tenant, project, "live")
    assert (made.types, made.headers) == (["message.read"], {"X-Api-Key": "a:b"})
    assert "no-store" in response.headers["Cache-Control"]
    for page in ("/webhooks", f"/webhooks/{made.pk}", f"/webhooks/{made.pk}/edit"):
        assert not SECRET.search(text(browser.get(page)))
    assert shown not in str([session.get_decoded() for session in Session.objects.all()])
    assert AuditEntry.objects.get().action == "webhook.created"


def test_makes_one_when_the_answer_is_reloaded(browser: Client) -> None:
    form = filled()
    browser.post("/new-webhook", form)

    again = browser.post("/new-webhook", form, follow=True)

    assert again.redirect_chain == [("/webhooks", 302)]
    assert "was made before" in text(again)
    assert WebhookEndpoint.objects.count() == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"url": ""},
        {"url": "http://169.254.169.254/latest"},
        {"environment": "staging"},
        {"types": ["message.lost"]},
        {"headers": "no colon"},
        {"headers": "Host: example.com"},
        {"project": "999999999"},
        {"once": ""},
    ],
)
def test_refuses_what_is_wrong(browser: Client, fields: dict[str, Any]) -> None:
    page = text(browser.post("/new-webhook", filled(**fields)))

    assert "errorlist" in page
    assert not WebhookEndpoint.objects.exists()


def test_refuses_the_project_of_another_tenant(browser: Client) -> None:
    page = text(browser.post("/new-webhook", filled(project=make_project(name="Alheio").pk)))

    assert "errorlist" in page
    assert "Alheio" not in page


# --- one endpoint ---


def test_lists_endpoints_and_how_they_are(browser: Client, endpoint: WebhookEndpoint) -> None:
    make_endpoint(make_tenant(), description="alheio")
    make_endpoint(endpoint.tenant, description="quebrado", failing_since=timezone.now())

    page = text(browser.get("/webhooks"))

    for said in ("CRM", URL, "Live", "On", "quebrado", "Failing"):
        assert said in page
    assert "alheio" not in page
    assert page.index("quebrado") < page.index(">CRM<")


def test_shows_the_log_by_filter(browser: Client, endpoint: WebhookEndpoint) -> None:
    first, second = tell(endpoint, 2)
    WebhookDelivery.objects.filter(pk=first.pk).update(status="failed", last_error="timeout")
    path = f"/webhooks/{endpoint.pk}"

    page = text(browser.get(path))
    assert first.event.name in page
    assert second.event.name in page
    assert "No answer in time" in page
    failed = text(browser.get(path, {"status": "failed"}))
    assert first.event.name in failed
    assert second.event.name not in failed
    assert "Nothing matches" in text(browser.get(path, {"type": "message.read"}))


def test_turns_pages_and_refreshes_only_the_log(
    browser: Client, endpoint: WebhookEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhooks.dashboard.PAGE", 2)
    rows = tell(endpoint, 5)
    path = f"/webhooks/{endpoint.pk}"

    older = re.findall(r'rel="next" href="([^"]+)"', text(browser.get(path)))[0]
    page = text(browser.get(older))

    assert rows[2].event.name in page
    assert rows[4].event.name not in page
    headers = {"HX-Request": "true", "HX-Target": "deliveries"}
    part = text(browser.get(path, headers=headers))
    assert "<html" not in part
    seen = re.findall(r'"seen": "(\w+)"', part)[0]
    assert browser.get(path, {"seen": seen}, headers=headers).status_code == 204


def test_lists_many_deliveries_in_few_queries(browser: Client, endpoint: WebhookEndpoint) -> None:
    tell(endpoint, 20)

    with CaptureQueriesContext(connection) as queries:
        browser.get(f"/webhooks/{endpoint.pk}")

    assert len(queries) <= 10, [query["sql"] for query in queries]


def test_changes_an_endpoint_and_keeps_hidden_headers(browser: Client, endpoint: WebhookEndpoint) -> None:
    page = text(browser.get(f"/webhooks/{endpoint.pk}/edit"))
    assert "X-Api-Key: ***" in page
    assert "sekret" not in page

    form = {
        "url": URL + "/v2",
        "description": "ERP",
        "headers": "X-Api-Key: ***\nX-New: 1",
        "types": ["message.read"],
    }
    browser.post(f"/webhooks/{endpoint.pk}/edit", form)

    endpoint.refresh_from_db()
    assert (endpoint.url, endpoint.description, endpoint.types) == (URL + "/v2", "ERP", ["message.read"])
    assert endpoint.headers == {"X-Api-Key": "sekret", "X-New": "1"}


def test_rotates_the_secret(browser: Client, endpoint: WebhookEndpoint) -> None:
    old = endpoint.secrets[0]["secret"]

    page = text(browser.post(f"/webhooks/{endpoint.pk}/rotate", {"overlap": "3600"}))

    endpoint.refresh_from_db()
    (shown,) = set(SECRET.findall(page))
    assert signing.working(endpoint.secrets, now=timezone.now()) == [shown, old]


def test_switches_off_and_on(browser: Client, endpoint: WebhookEndpoint) -> None:
    browser.post(f"/webhooks/{endpoint.pk}/switch-off")
    endpoint.refresh_from_db()
    assert endpoint.disabled_by == "person"
    assert "Switch on and catch up" in text(browser.get(f"/webhooks/{endpoint.pk}"))

    browser.post(f"/webhooks/{endpoint.pk}/switch-on", {"catch_up": "1"})

    endpoint.refresh_from_db()
    assert endpoint.enabled
    assert WebhookReplay.objects.count() == 1
    assert browser.post(f"/webhooks/{endpoint.pk}/switch-sideways").status_code == 404


def test_asks_before_it_removes(browser: Client, endpoint: WebhookEndpoint) -> None:
    assert "Remove CRM?" in text(browser.get(f"/webhooks/{endpoint.pk}/remove"))

    browser.post(f"/webhooks/{endpoint.pk}/remove")

    assert not WebhookEndpoint.present.exists()
    assert browser.get(f"/webhooks/{endpoint.pk}").status_code == 404


def test_sends_a_test_and_shows_what_comes_of_it(browser: Client, endpoint: WebhookEndpoint) -> None:
    page = text(browser.post(f"/webhooks/{endpoint.pk}/test", {"type": "message.failed"}, follow=True))

    delivery = WebhookDelivery.objects.get()
    assert delivery.event.sample
    assert delivery.event.name in page
    assert "It has not been tried yet." in page


def test_says_why_it_cannot_send_where_it_is_off(browser: Client, endpoint: WebhookEndpoint) -> None:
    WebhookEndpoint.objects.update(disabled_at=timezone.now(), disabled_by="person")

    page = text(browser.post(f"/webhooks/{endpoint.pk}/test", {"type": "message.failed"}, follow=True))

    assert "The endpoint is switched off." in page


def test_replays_a_time_of_the_tenants_day(browser: Client, endpoint: WebhookEndpoint) -> None:
    local = timezone.localtime(timezone.now() - timedelta(hours=2), timezone=None).astimezone()
    since = (timezone.now() - timedelta(hours=5)).strftime(
        "%Y-%m-%dT%H:%M"
    )  # 3 hours behind UTC: 2 hours ago
    browser.post(f"/webhooks/{endpoint.pk}/replay", {"since": since, "until": "", "everything": "yes"})

    order = WebhookReplay.objects.get()
    assert abs(order.since - local) < timedelta(minutes=2)
    assert order.everything
    wrong = browser.post(f"/webhooks/{endpoint.pk}/replay", {"since": "2099-01-01T00:00", "everything": "no"})
    assert "errorlist" in text(wrong)


@pytest.mark.parametrize(("change", "said"), [("", "is fresh"), (" ", "is not right")])
def test_says_what_is_wrong_with_a_call(
    browser: Client, endpoint: WebhookEndpoint, change: str, said: str
) -> None:
    body = '{"type":"message.read"}'
    signed = signing.headers(
        "evt_m1", body.encode(), secrets=[endpoint.secrets[0]["secret"]], now=timezone.now()
    )
    pasted = "\r\n".join(f"{name.title()}: {value}" for name, value in signed.items())

    page = text(browser.post(f"/webhooks/{endpoint.pk}/verify", {"headers": pasted, "body": body + change}))

    assert said in page


def test_shows_every_event_of_the_catalogue(browser: Client) -> None:
    page = text(browser.get("/webhook-events"))

    assert "message.delivered" in page
    assert '"message_id": "01a228e8' in page


# --- one delivery ---


def test_shows_a_delivery_with_its_attempts(browser: Client, endpoint: WebhookEndpoint) -> None:
    (row,) = tell(endpoint)
    entry = {
        "at": "2026-11-29T12:00:00.000Z",
        "seconds": 0.1,
        "url": URL,
        "status": 500,
        "error": "",
        "reason": "",
        "request_headers": {"webhook-id": row.event.name},
        "response_headers": {"server": "nginx"},
        "response_body": "<script>alert(1)</script>",
    }
    WebhookDelivery.objects.update(untried=False, attempts=1, log=[entry, {}])

    response = browser.get(f"/webhooks/{endpoint.pk}/deliveries/{row.pk}")

    page = response.content.decode()
    assert "HTTP 500" in page
    assert "server: nginx" in page
    assert "&lt;script&gt;" in page
    assert "<script>alert" not in page


def test_sends_a_delivery_again(browser: Client, endpoint: WebhookEndpoint) -> None:
    (row,) = tell(endpoint)
    WebhookDelivery.objects.update(status="failed", untried=False, attempts=8)

    browser.post(f"/webhooks/{endpoint.pk}/deliveries/{row.pk}/resend", follow=True)

    row.refresh_from_db()
    assert (row.status, row.attempts) == ("pending", 0)


# --- who may, and who is told ---

PAGES = [
    "/webhooks/{endpoint}",
    "/webhooks/{endpoint}/edit",
    "/webhooks/{endpoint}/rotate",
    "/webhooks/{endpoint}/remove",
    "/webhooks/{endpoint}/replay",
    "/webhooks/{endpoint}/verify",
    "/webhooks/{endpoint}/deliveries/{delivery}",
]
POSTS = [
    "/webhooks/{endpoint}/switch-off",
    "/webhooks/{endpoint}/test",
    "/webhooks/{endpoint}/deliveries/{delivery}/resend",
]


@pytest.mark.parametrize("page", [*PAGES, *POSTS])
def test_hides_the_webhooks_of_another_tenant(browser: Client, page: str) -> None:
    foreign = make_endpoint()
    (row,) = tell(foreign)
    path = page.format(endpoint=foreign.pk, delivery=row.pk)

    answers = [browser.post(path)] if page in POSTS else [browser.get(path), browser.post(path)]

    assert {answer.status_code for answer in answers} <= {404, 405}
    assert WebhookEndpoint.objects.get().enabled


@pytest.mark.parametrize("role", [Role.VIEWER, Role.AGENT])
@pytest.mark.parametrize("page", ["/webhooks", "/new-webhook", "/webhook-events", *PAGES])
def test_is_only_for_administrators(endpoint: WebhookEndpoint, page: str, role: Role) -> None:
    (row,) = tell(endpoint)
    path = page.format(endpoint=endpoint.pk, delivery=row.pk)

    assert member(endpoint.tenant, role=role).get(path).status_code == 403
    assert member(endpoint.tenant, role=Role.ADMIN).get(path).status_code == 200


@pytest.mark.parametrize(("role", "told"), [(Role.OWNER, True), (Role.ADMIN, True), (Role.AGENT, False)])
def test_tells_those_who_can_do_something_what_pilot_switched_off(
    endpoint: WebhookEndpoint, role: Role, told: bool
) -> None:
    WebhookEndpoint.objects.update(disabled_at=timezone.now(), disabled_by="failing")

    page = text(member(endpoint.tenant, role=role).get("/"))

    assert ("A webhook was switched off" in page) is told


def test_runs_nothing_but_its_own_files(browser: Client, endpoint: WebhookEndpoint) -> None:
    for path in ("/webhooks", "/new-webhook", f"/webhooks/{endpoint.pk}", "/webhook-events"):
        assert not re.search(r"<style|style=|<script(?![^>]* src=)|\son\w+=", text(browser.get(path)))
