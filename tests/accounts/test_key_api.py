"""The API of keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import ApiKey, AuditEntry, Environment, Scope
from tests import factories
from tests.messaging.api.conftest import Api
from tests.messaging.api.test_messages import error

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner() -> ApiKey:
    return factories.make_key(scopes=[Scope.KEYS_ADMIN, Scope.MESSAGES_READ])[0]


@pytest.fixture
def api(owner: ApiKey) -> Api:
    return Api(factories.make_key(owner.project, scopes=owner.scopes)[1])


def issue(api: Api, **fields: Any) -> Any:
    return api.post("/api/keys", {"name": "loja", "scopes": ["messages:read"]} | fields)


def test_issues_a_key_that_works(api: Api) -> None:
    body = issue(api).json()
    assert body["key"].startswith(body["prefix"])
    assert (body["state"], body["environment"], body["scopes"]) == ("active", "live", ["messages:read"])
    assert Api(body["key"]).get("/api/messages").status_code == 200
    assert Api(body["key"]).get("/api/keys").status_code == 403
    assert AuditEntry.objects.get().action == "key.issued"
    shown = api.get(f"/api/keys/{body['prefix']}").json()
    assert body["key"] not in str(shown)
    assert set(shown) == set(body) - {"key"}


def test_gives_no_right_that_it_does_not_have(api: Api) -> None:
    refused = issue(api, scopes=["messages:read", "messages:write"])
    assert (refused.status_code, set(error(refused)["fields"])) == (403, {"scopes"})
    stronger, _raw = factories.make_key(ApiKey.objects.first().project)
    assert api.post(f"/api/keys/{stronger.prefix}/rotate", {}).status_code == 403


def test_revokes_at_once(api: Api) -> None:
    body = issue(api).json()
    for _ in range(2):
        assert api.call("DELETE", f"/api/keys/{body['prefix']}").status_code == 204
    assert Api(body["key"]).get("/api/messages").status_code == 401
    assert api.get(f"/api/keys/{body['prefix']}").json()["state"] == "revoked"
    assert [entry.action for entry in AuditEntry.objects.order_by("id")] == ["key.issued", "key.revoked"]


def test_rotates_with_an_overlap(api: Api) -> None:
    old = issue(api).json()
    new = api.post(f"/api/keys/{old['prefix']}/rotate", {"overlap_seconds": 3600})
    assert (new.status_code, new.json()["scopes"]) == (201, old["scopes"])
    for raw in (old["key"], new.json()["key"]):
        assert Api(raw).get("/api/messages").status_code == 200
    assert api.get(f"/api/keys/{old['prefix']}").json()["state"] == "ending"
    again = api.post(f"/api/keys/{old['prefix']}/rotate", {})
    assert (again.status_code, error(again)["code"]) == (409, "key_ended")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["everything"]}, "scopes"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"environment": "test"}, "environment"),
    ],
)
def test_names_what_is_wrong(api: Api, fields: dict[str, Any], field: str) -> None:
    answer = issue(api, **fields)
    assert (answer.status_code, set(error(answer)["fields"])) == (400, {field})


def test_shows_only_keys_of_its_project_and_environment(api: Api, owner: ApiKey) -> None:
    theirs = [
        factories.make_key(owner.project, environment=Environment.TEST)[0],
        factories.make_key(factories.make_project(owner.tenant))[0],
        factories.make_key()[0],
    ]
    for key in theirs:
        assert api.get(f"/api/keys/{key.prefix}").status_code == 404
        assert api.call("DELETE", f"/api/keys/{key.prefix}").status_code == 404
    listed = [key["prefix"] for key in api.get("/api/keys").json()["keys"]]
    own = ApiKey.objects.filter(project=owner.project, environment="live")
    assert listed == sorted(own.values_list("prefix", flat=True))
    first = api.get("/api/keys", limit=1).json()
    rest = api.get("/api/keys", limit=1, cursor=first["next_cursor"]).json()
    assert [first["keys"][0]["prefix"], rest["keys"][0]["prefix"]] == listed


def test_ends_by_itself(api: Api) -> None:
    soon = timezone.now() + timedelta(days=1)
    body = issue(api, expires_at=soon.isoformat()).json()
    ApiKey.objects.filter(prefix=body["prefix"]).update(expires_at=timezone.now())
    assert Api(body["key"]).get("/api/messages").status_code == 401
    assert api.get(f"/api/keys/{body['prefix']}").json()["state"] == "expired"
