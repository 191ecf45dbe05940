"""The pages about API keys: a raw key is shown once and kept nowhere, and only administrators come in."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
import time_machine
from django.contrib.sessions.models import Session
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts import keys
from accounts.models import ApiKey, Project, Role, Scope
from tests.factories import make_key, make_project, make_tenant
from tests.members import make_user, member, signed_in

pytestmark = pytest.mark.django_db

RAW = re.compile(r"pilot_(?:test|live)_[0-9a-f]{8}_[A-Za-z0-9_-]{43}")


@pytest.fixture
def project() -> Project:
    return make_project(make_tenant(time_zone="America/Sao_Paulo"), name="Loja")


@pytest.fixture
def browser(project: Project) -> Client:
    return member(project.tenant, role=Role.ADMIN)


@pytest.fixture
def key(project: Project) -> ApiKey:
    return _issued(project)[0]


def _issued(project: Project, **fields: Any) -> tuple[ApiKey, str]:
    return make_key(project, **{"name": "crm", "now": timezone.now()} | fields)


def _filled(project: Project, /, **fields: Any) -> dict[str, Any]:
    """What a browser sends of a new form that was filled in."""
    scopes = [Scope.MESSAGES_READ.value, Scope.MESSAGES_WRITE.value]
    filled = {"name": "crm", "project": project.pk, "environment": "live", "scopes": scopes, "once": uuid4()}
    return filled | fields


def _text(response: HttpResponse) -> str:
    return html.unescape(response.content.decode())


def _raw(response: HttpResponse) -> str:
    """The one raw key on a page."""
    assert response.status_code == 200
    (found,) = RAW.findall(_text(response))
    return str(found)


def _list(browser: Client) -> str:
    return _text(browser.get("/keys"))


def _api(raw: str) -> int:
    """The status that the API answers this key with."""
    return Client().get("/api/messages", headers={"apikey": raw}).status_code


# --- issuing ---


def test_issues_a_key_and_shows_it_once(browser: Client, project: Project) -> None:
    response = browser.post("/new-key", _filled(project))

    raw = _raw(response)
    key = ApiKey.objects.get()
    assert raw.startswith(key.prefix + "_")
    assert (key.tenant, key.project, key.name, key.environment) == (project.tenant, project, "crm", "live")
    assert (set(key.scopes), key.expires_at) == ({Scope.MESSAGES_READ, Scope.MESSAGES_WRITE}, None)
    assert "no-store" in response.headers["Cache-Control"].split(", ")
    assert not RAW.search(_list(browser))
    assert key.prefix in _list(browser)


def test_keeps_no_raw_key(browser: Client, project: Project, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    secret = _raw(browser.post("/new-key", _filled(project)))[-43:]

    assert secret not in str(ApiKey.objects.values().get())
    assert secret not in str([session.get_decoded() for session in Session.objects.all()])
    assert secret not in str(browser.cookies)
    assert secret not in caplog.text


def test_issues_a_key_that_the_api_takes(browser: Client, project: Project) -> None:
    raw = _raw(browser.post("/new-key", _filled(project)))

    assert _api(raw[:-1] + "=") == 401
    assert _api(raw) == 200


def test_issues_nothing_more_when_the_answer_is_reloaded(browser: Client, project: Project) -> None:
    filled = _filled(project)
    browser.post("/new-key", filled)

    again = browser.post("/new-key", filled, follow=True)

    assert again.redirect_chain == [("/keys", 302)]
    assert "was issued before" in _text(again)
    assert not RAW.search(_text(again))
    assert ApiKey.objects.count() == 1


def test_does_not_mistake_a_stranger_for_a_reload(browser: Client, project: Project) -> None:
    filled, elsewhere = _filled(project), make_project()
    browser.post("/new-key", filled)

    _raw(member(elsewhere.tenant).post("/new-key", filled | {"project": elsewhere.pk}))

    assert ApiKey.objects.count() == 2


def test_gives_every_form_its_own_mark(browser: Client, project: Project) -> None:
    marks = {re.findall(r'name="once" value="([^"]+)"', _text(browser.get("/new-key")))[0] for _ in range(3)}

    assert len(marks) == 3


def test_remembers_who_issued(project: Project) -> None:
    user = make_user(project.tenant)
    signed_in(user).post("/new-key", _filled(project))

    assert ApiKey.objects.get().created_by == user


def test_proposes_reading_and_sending_in_the_only_project(browser: Client, project: Project) -> None:
    page = _text(browser.get("/new-key"))

    checked = re.findall(r'<input type="checkbox" name="scopes" value="([^"]+)"[^>]* checked', page)
    assert checked == ["messages:read", "messages:write"]
    assert re.search(rf'<option value="{project.pk}" selected', page)


def test_leaves_the_choice_between_projects(browser: Client, project: Project) -> None:
    make_project(project.tenant, name="Blog")

    assert not re.search(r'<option value="\d+" selected', _text(browser.get("/new-key")))


def test_says_that_a_key_needs_a_project() -> None:
    page = _text(member(make_tenant()).get("/new-key"))

    assert "No project yet" in page
    assert 'name="scopes"' not in page


@time_machine.travel(datetime(2026, 11, 30, 1, 30, tzinfo=UTC), tick=False)  # still the 29th in São Paulo
def test_ends_a_key_with_its_last_day_in_the_time_zone_of_the_tenant(
    browser: Client, project: Project
) -> None:
    raw = _raw(browser.post("/new-key", _filled(project, expires_at="2026-11-29")))

    end = datetime(2026, 11, 30, 3, tzinfo=UTC)
    assert ApiKey.objects.get().expires_at == end - timedelta(microseconds=1)
    with time_machine.travel(end - timedelta(seconds=1)):
        assert _api(raw) == 200
    with time_machine.travel(end):
        assert _api(raw) == 401


WRONG = {
    "no name": {"name": " "},
    "a long name": {"name": "n" * 81},
    "no project": {"project": ""},
    "no such project": {"project": "999999999"},
    "a project that is no number": {"project": "x"},
    "no environment": {"environment": ""},
    "no such environment": {"environment": "staging"},
    "no scope": {"scopes": []},
    "no such scope": {"scopes": ["messages:read", "admin"]},
    "a day that is none": {"expires_at": "2026-02-30"},
    "a day that is over": {"expires_at": "2020-01-01"},
    "the last of all days": {"expires_at": "9999-12-31"},
    "no mark": {"once": ""},
    "a wrong mark": {"once": "1"},
}


@pytest.mark.parametrize("fields", WRONG.values(), ids=WRONG)
def test_refuses_what_is_wrong(browser: Client, project: Project, fields: dict[str, Any]) -> None:
    response = browser.post("/new-key", _filled(project, **fields))

    assert response.status_code == 200
    assert "errorlist" in _text(response)
    assert not ApiKey.objects.exists()


def test_refuses_the_project_of_another_tenant(browser: Client, project: Project) -> None:
    foreign = make_project(name="Alheio")

    response = browser.post("/new-key", _filled(project, project=foreign.pk))

    assert "errorlist" in _text(response)
    assert "Alheio" not in _text(response)
    assert not ApiKey.objects.exists()


def test_keeps_what_was_typed_when_something_is_wrong(browser: Client, project: Project) -> None:
    make_project(project.tenant)
    typed = _filled(project, name="caixa", environment="test", scopes=["instances:read"], expires_at="nunca")

    page = _text(browser.post("/new-key", typed))

    assert 'value="caixa"' in page
    assert 'value="nunca"' in page
    assert re.search(r'value="test"[^>]* checked', page)
    assert re.search(rf'<option value="{project.pk}" selected', page)
    assert re.findall(r'name="scopes" value="([^"]+)"[^>]* checked', page) == ["instances:read"]
    assert str(typed["once"]) in page


# --- the list ---


def test_lists_the_keys_of_the_tenant(browser: Client, project: Project) -> None:
    key, raw = _issued(project, environment="test", scopes=[Scope.INSTANCES_READ])
    keys.authenticate(raw, now=timezone.now())
    _issued(make_project(), name="alheia")

    page = _list(browser)

    for said in ("crm", f"{key.prefix}…", "Loja", "Test", "Read instances", "Active"):
        assert said in page
    assert "never" not in page
    assert "alheia" not in page
    assert key.digest not in page


def test_tells_the_states_apart(browser: Client, project: Project, key: ApiKey) -> None:
    now = timezone.now()
    successor, _raw_key = keys.rotate(key, overlap=timedelta(hours=1), now=now)
    revoked, _raw_key = _issued(project, name="revogada")
    keys.revoke(revoked, now=now)
    _issued(project, name="vencida", expires_at=now - timedelta(days=1))

    live, _summary, ended = _list(browser).partition('<details class="more past">')

    assert "Replaced" in live
    assert f"Replaced by {successor.prefix}…" in re.sub(r"<[^>]+>", "", live)
    assert live.count("Active") == 1
    assert "revogada" not in live
    assert "vencida" not in live
    assert ("revogada" in ended, "vencida" in ended) == (True, True)
    assert ("Revoked" in ended, "Expired" in ended) == (True, True)
    assert "/rotate" not in ended
    assert "/revoke" not in ended


def test_offers_to_rotate_only_what_has_no_successor(browser: Client, key: ApiKey) -> None:
    successor, _raw_key = keys.rotate(key, overlap=timedelta(hours=1), now=timezone.now())

    page = _list(browser)

    assert f"/keys/{successor.prefix}/rotate" in page
    assert f"/keys/{key.prefix}/rotate" not in page
    assert f"/keys/{key.prefix}/revoke" in page


def test_lists_many_keys_in_few_queries(browser: Client, project: Project) -> None:
    for _number in range(10):
        key, _raw_key = _issued(project)
        keys.rotate(key, overlap=timedelta(hours=1), now=timezone.now())

    with CaptureQueriesContext(connection) as queries:
        browser.get("/keys")

    assert len(queries) <= 6, [query["sql"] for query in queries]


def test_says_that_there_are_no_keys(browser: Client) -> None:
    assert "No keys yet" in _list(browser)


# --- rotating ---


def test_rotates_with_an_overlap(browser: Client, project: Project) -> None:
    key, old = _issued(project)

    response = browser.post(f"/keys/{key.prefix}/rotate", {"overlap": "3600"})

    new = _raw(response)
    assert "no-store" in response.headers["Cache-Control"].split(", ")
    assert (_api(old), _api(new)) == (200, 200)
    with time_machine.travel(timezone.now() + timedelta(minutes=61)):
        assert (_api(old), _api(new)) == (401, 200)


@pytest.mark.parametrize("overlap", [timedelta(hours=hours) for hours in (0, 1, 24, 7 * 24)])
def test_ends_the_old_key_after_the_chosen_overlap(browser: Client, key: ApiKey, overlap: timedelta) -> None:
    now = timezone.now()
    with time_machine.travel(now, tick=False):
        browser.post(f"/keys/{key.prefix}/rotate", {"overlap": int(overlap.total_seconds())})

    key.refresh_from_db()
    assert key.revoked_at == now + overlap


@pytest.mark.parametrize("choice", ["", "60", "-3600", "x", "1e3"])
def test_refuses_any_other_overlap(browser: Client, key: ApiKey, choice: str) -> None:
    response = browser.post(f"/keys/{key.prefix}/rotate", {"overlap": choice})

    assert "errorlist" in _text(response)
    assert ApiKey.objects.count() == 1


def test_rotates_once_when_the_answer_is_reloaded(browser: Client, key: ApiKey) -> None:
    for _time in range(2):
        response = browser.post(f"/keys/{key.prefix}/rotate", {"overlap": "0"}, follow=True)

    assert "was rotated before" in _text(response)
    assert not RAW.search(_text(response))
    assert ApiKey.objects.count() == 2


# --- revoking ---


def test_asks_before_it_revokes(browser: Client, project: Project) -> None:
    key, raw = _issued(project)

    page = _text(browser.get(f"/keys/{key.prefix}/revoke"))

    assert "Revoke crm?" in page
    assert key.prefix in page
    assert _api(raw) == 200


def test_revokes_at_once(browser: Client, project: Project) -> None:
    key, raw = _issued(project)

    page = _text(browser.post(f"/keys/{key.prefix}/revoke", follow=True))

    assert _api(raw) == 401
    assert "The key was revoked" in page


def test_says_when_a_key_had_ended_before(browser: Client, key: ApiKey) -> None:
    keys.revoke(key, now=timezone.now())

    page = _text(browser.post(f"/keys/{key.prefix}/revoke", follow=True))

    assert "had ended before" in page


# --- who may ---


@pytest.mark.parametrize("page", ["rotate", "revoke"])
def test_hides_the_keys_of_another_tenant(browser: Client, page: str) -> None:
    foreign, raw = _issued(make_project())

    answers = [browser.get(f"/keys/{foreign.prefix}/{page}"), browser.post(f"/keys/{foreign.prefix}/{page}")]

    assert [answer.status_code for answer in answers] == [404, 404]
    assert _api(raw) == 200
    assert ApiKey.objects.count() == 1


@pytest.mark.parametrize("role", [Role.VIEWER, Role.AGENT])
@pytest.mark.parametrize("url", ["/keys", "/new-key", "/keys/{prefix}/rotate", "/keys/{prefix}/revoke"])
def test_shows_keys_only_to_administrators(project: Project, key: ApiKey, url: str, role: Role) -> None:
    assert member(project.tenant, role=role).get(url.format(prefix=key.prefix)).status_code == 403
    assert member(project.tenant, role=Role.ADMIN).get(url.format(prefix=key.prefix)).status_code == 200


@pytest.mark.parametrize(
    ("role", "shown"), [(Role.OWNER, True), (Role.ADMIN, True), (Role.AGENT, False), (Role.VIEWER, False)]
)
def test_leads_administrators_to_the_keys(project: Project, role: Role, shown: bool) -> None:
    assert ('href="/keys"' in _text(member(project.tenant, role=role).get("/"))) is shown


def test_runs_nothing_but_its_own_files_where_a_key_is_shown(browser: Client, project: Project) -> None:
    response = browser.post("/new-key", _filled(project))

    assert response.headers["Content-Security-Policy"].startswith("default-src 'self';")
    assert not re.search(r"<style|style=|<script(?![^>]* src=)|\son\w+=", _text(response))
