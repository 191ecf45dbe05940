"""The webhook API."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from accounts.models import ApiKey, AuditEntry, Scope
from tests.factories import make_key, make_project
from tests.messaging.api.conftest import Api
from tests.webhooks.tellings import make_endpoint, tell
from webhooks import signing
from webhooks.catalogue import TYPES
from webhooks.models import WebhookDelivery, WebhookEndpoint, WebhookReplay

pytestmark = pytest.mark.django_db

URL = "https://example.com/pilot"


@pytest.fixture
def key() -> tuple[ApiKey, str]:
    return make_key()


@pytest.fixture
def api(key: tuple[ApiKey, str]) -> Api:
    return Api(key[1])


@pytest.fixture
def endpoint(key: tuple[ApiKey, str]) -> WebhookEndpoint:
    return make_endpoint(project=key[0].project, url=URL)


def patch(api: Api, endpoint: WebhookEndpoint, **fields: Any) -> Any:
    return api.call("PATCH", f"/api/webhooks/{endpoint.pk}", json.dumps(fields).encode())


def test_makes_an_endpoint_of_the_keys_project_and_environment(api: Api, key: tuple[ApiKey, str]) -> None:
    body = {"url": URL, "types": ["message.read"], "headers": {"X-Api-Key": "sekret"}, "description": "CRM"}

    answer = api.post("/api/webhooks", body)

    assert answer.status_code == 201
    made = WebhookEndpoint.objects.get()
    assert (made.tenant, made.project, made.environment) == (key[0].tenant, key[0].project, "live")
    shown = answer.json()
    assert shown["secret"] == made.secrets[0]["secret"]
    assert answer.headers["Location"] == f"/api/webhooks/{made.pk}"
    again = api.get(f"/api/webhooks/{made.pk}")
    assert again.json() == {name: value for name, value in shown.items() if name != "secret"}
    assert (shown["header_names"], shown["enabled"], shown["version"]) == (["X-Api-Key"], True, "1")
    assert "sekret" not in again.content.decode()
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.key) == ("webhook.created", key[0])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "url"),
        ({"url": 7}, "url"),
        ({"url": "http://10.0.0.1/"}, "url"),
        ({"url": URL, "types": ["message.lost"]}, "types"),
        ({"url": URL, "types": "message.read"}, "types"),
        ({"url": URL, "headers": {"Host": "x"}}, "headers"),
        ({"url": URL, "headers": {"X-A": "x\r\ny"}}, "headers"),
        ({"url": URL, "headers": ["X-A"]}, "headers"),
        ({"url": URL, "version": "9"}, "version"),
        ({"url": URL, "secret": "whsec_x"}, "secret"),
        ({"url": URL, "description": "d" * 121}, "description"),
    ],
)
def test_refuses_what_is_wrong_and_names_the_field(api: Api, body: Any, field: str) -> None:
    answer = api.post("/api/webhooks", body)

    assert answer.status_code == 400
    assert field in answer.json()["error"]["fields"]
    assert not WebhookEndpoint.objects.exists()


def test_lists_endpoints_page_by_page(api: Api, key: tuple[ApiKey, str]) -> None:
    made = [make_endpoint(project=key[0].project) for _number in range(3)]

    first = api.get("/api/webhooks", limit=2).json()
    second = api.get("/api/webhooks", limit=2, cursor=first["next_cursor"]).json()

    listed = [one["id"] for one in first["webhooks"] + second["webhooks"]]
    assert listed == [str(one.pk) for one in sorted(made, key=lambda one: one.pk)]
    assert second["next_cursor"] is None


def test_changes_only_what_is_given(api: Api, endpoint: WebhookEndpoint) -> None:
    answer = patch(api, endpoint, description="outro", types=["message.failed"])

    endpoint.refresh_from_db()
    assert answer.status_code == 200
    assert (endpoint.url, endpoint.description, endpoint.types) == (URL, "outro", ["message.failed"])
    assert answer.json()["types"] == ["message.failed"]


def test_switches_off_and_on(api: Api, endpoint: WebhookEndpoint) -> None:
    off = patch(api, endpoint, enabled=False).json()
    assert (off["enabled"], off["disabled_by"]) == (False, "person")

    on = patch(api, endpoint, enabled=True, catch_up=True).json()

    assert (on["enabled"], on["disabled_at"], on["disabled_by"]) == (True, None, None)
    assert WebhookReplay.objects.filter(endpoint=endpoint).count() == 1


def test_refuses_a_change_whole(api: Api, endpoint: WebhookEndpoint) -> None:
    answer = patch(api, endpoint, url="http://localhost/", description="novo", enabled=False)

    endpoint.refresh_from_db()
    assert answer.status_code == 400
    assert (endpoint.description, endpoint.enabled) == ("", True)


def test_removes_an_endpoint(api: Api, endpoint: WebhookEndpoint) -> None:
    assert api.call("DELETE", f"/api/webhooks/{endpoint.pk}").status_code == 204
    assert api.get(f"/api/webhooks/{endpoint.pk}").status_code == 404


def test_rotates_the_secret(api: Api, endpoint: WebhookEndpoint) -> None:
    old = endpoint.secrets[0]["secret"]

    answer = api.post(f"/api/webhooks/{endpoint.pk}/rotate-secret", {"overlap_seconds": 3600})

    endpoint.refresh_from_db()
    working = signing.working(endpoint.secrets, now=timezone.now())
    assert working == [answer.json()["secret"], old]
    assert api.post(f"/api/webhooks/{endpoint.pk}/rotate-secret", {"overlap_seconds": -1}).status_code == 400


def test_sends_a_test(api: Api, endpoint: WebhookEndpoint) -> None:
    answer = api.post(f"/api/webhooks/{endpoint.pk}/test", {"type": "message.failed"})

    assert answer.status_code == 202
    assert (answer.json()["type"], answer.json()["status"]) == ("message.failed", "pending")
    assert WebhookDelivery.objects.get().event.sample


def test_lists_deliveries_by_filter_and_page(api: Api, endpoint: WebhookEndpoint) -> None:
    made = tell(endpoint, 5)
    WebhookDelivery.objects.filter(pk=made[1].pk).update(status="failed")
    path = f"/api/webhooks/{endpoint.pk}/deliveries"

    first = api.get(path, limit=3).json()
    second = api.get(path, limit=3, cursor=first["next_cursor"]).json()

    listed = [one["id"] for one in first["deliveries"] + second["deliveries"]]
    assert listed == [str(row.pk) for row in reversed(made)]
    assert [one["id"] for one in api.get(path, status="failed").json()["deliveries"]] == [str(made[1].pk)]
    assert api.get(path, type="message.read").json()["deliveries"] == []
    assert api.get(path, created_after="2099-01-01T00:00:00Z").json()["deliveries"] == []


@pytest.mark.parametrize("cursor", ["x", "OQ", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OQ", "wrI"])
def test_refuses_a_cursor_of_its_own_making(api: Api, endpoint: WebhookEndpoint, cursor: str) -> None:
    for path in ("/api/webhooks", f"/api/webhooks/{endpoint.pk}/deliveries"):
        answer = api.get(path, cursor=cursor)
        assert answer.status_code in (200, 400), answer.content


def test_shows_a_delivery_with_payload_and_attempts(api: Api, endpoint: WebhookEndpoint) -> None:
    (row,) = tell(endpoint)
    entry = {
        "at": "2026-11-29T12:00:00.000Z",
        "seconds": 0.1,
        "url": URL,
        "status": 500,
        "error": "",
        "reason": "",
        "request_headers": {"webhook-id": row.event.name},
        "response_headers": {},
        "response_body": "no",
    }
    WebhookDelivery.objects.update(log=[entry])

    shown = api.get(f"/api/webhooks/{endpoint.pk}/deliveries/{row.pk}").json()

    assert shown["payload"]["id"] == shown["event_id"] == row.event.name
    assert shown["log"] == [entry]


def test_sends_a_delivery_again(api: Api, endpoint: WebhookEndpoint) -> None:
    (row,) = tell(endpoint)
    WebhookDelivery.objects.update(status="failed", untried=False, attempts=8)

    answer = api.post(f"/api/webhooks/{endpoint.pk}/deliveries/{row.pk}/resend", {})

    assert (answer.status_code, answer.json()["status"], answer.json()["attempts"]) == (202, "pending", 0)


def test_replays_a_time(api: Api, endpoint: WebhookEndpoint) -> None:
    since = (timezone.now() - timedelta(days=1)).isoformat()

    answer = api.post(f"/api/webhooks/{endpoint.pk}/replay", {"since": since, "everything": True})

    assert (answer.status_code, answer.json()["finished_at"]) == (202, None)
    assert WebhookReplay.objects.get().everything
    wrong = api.post(f"/api/webhooks/{endpoint.pk}/replay", {"since": "2099-01-01T00:00:00Z"})
    assert "since" in wrong.json()["error"]["fields"]


def test_says_409_where_an_endpoint_is_off(api: Api, endpoint: WebhookEndpoint) -> None:
    patch(api, endpoint, enabled=False)

    answer = api.post(f"/api/webhooks/{endpoint.pk}/test", {})

    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "endpoint_disabled")


def test_says_what_is_wrong_with_a_received_call(api: Api, endpoint: WebhookEndpoint) -> None:
    body = '{"type":"message.read"}'
    secret = endpoint.secrets[0]["secret"]
    headers = signing.headers("evt_m1", body.encode(), secrets=[secret], now=timezone.now())
    path = f"/api/webhooks/{endpoint.pk}/verify"

    assert api.post(path, {"headers": headers, "body": body}).json() == {"finding": "valid"}
    assert api.post(path, {"headers": headers, "body": body + " "}).json() == {"finding": "no_match"}
    assert api.post(path, {"headers": {}, "body": body}).json() == {"finding": "headers_missing"}


def test_lists_the_catalogue(api: Api) -> None:
    listed = api.get("/api/webhooks/event-types").json()["event_types"]

    assert [one["name"] for one in listed] == list(TYPES)
    assert listed[0]["schema"]["type"] == "object"


# --- who may ---

PATHS = [
    ("GET", ""),
    ("PATCH", ""),
    ("DELETE", ""),
    ("POST", "/rotate-secret"),
    ("POST", "/test"),
    ("POST", "/replay"),
    ("POST", "/verify"),
    ("GET", "/deliveries"),
    ("GET", "/deliveries/{delivery}"),
    ("POST", "/deliveries/{delivery}/resend"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("whose", ["tenant", "project", "environment"])
def test_hides_the_endpoints_of_others(
    api: Api, key: tuple[ApiKey, str], method: str, path: str, whose: str
) -> None:
    foreign = {
        "tenant": lambda: make_endpoint(project=make_project()),
        "project": lambda: make_endpoint(project=make_project(key[0].tenant)),
        "environment": lambda: make_endpoint(project=key[0].project, environment="test"),
    }[whose]()
    (delivery,) = tell(foreign)

    url = f"/api/webhooks/{foreign.pk}{path}".replace("{delivery}", str(delivery.pk))
    answer = api.call(method, url, b"{}")

    assert answer.status_code == 404
    assert WebhookEndpoint.objects.filter(pk=foreign.pk).exists()
    assert api.get("/api/webhooks").json()["webhooks"] == []


def test_hides_a_delivery_of_another_endpoint(api: Api, key: tuple[ApiKey, str]) -> None:
    mine, other = make_endpoint(project=key[0].project), make_endpoint(project=make_project())
    (delivery,) = tell(other)

    assert api.get(f"/api/webhooks/{mine.pk}/deliveries/{delivery.pk}").status_code == 404
    assert api.get(f"/api/webhooks/{mine.pk}/deliveries/{10**30}").status_code == 404
    assert api.get(f"/api/webhooks/{uuid4()}").status_code == 404


@pytest.mark.parametrize(("method", "path"), [("GET", "/api/webhooks"), ("POST", "/api/webhooks"), *PATHS])
def test_needs_the_scope(key: tuple[ApiKey, str], method: str, path: str) -> None:
    endpoint = make_endpoint(project=key[0].project)
    (delivery,) = tell(endpoint)
    others = [scope for scope in Scope.values if not scope.startswith("webhooks:")]
    _key, raw = make_key(key[0].project, scopes=others)
    url = path if path.startswith("/api") else f"/api/webhooks/{endpoint.pk}{path}"

    answer = Api(raw).call(method, url.replace("{delivery}", str(delivery.pk)), b"{}")

    assert answer.status_code == 403
