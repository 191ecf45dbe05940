"""No key reaches what is not its own, through any route of the API. A new route fails here until it is listed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone

from accounts import keys
from accounts.models import Environment, Scope
from messaging.models import Contact, Message
from tests import factories
from tests.messaging.api.conftest import Api, World
from tests.messaging.api.test_messages import TEXT, error
from tests.webhooks.tellings import make_endpoint, tell
from webhooks.models import WebhookDelivery, WebhookEndpoint

PUBLIC = {"api/webhooks/event-types"}  # the same for all, with examples in it
OPEN = {"api/schema", "api/docs", "api/"}  # the last one answers 404 to everything else
# route: (method, scope it needs, what it answers to a stranger who asks for the world's objects)
GUARDED: dict[str, list[tuple[str, Scope, int]]] = {
    "api/instances": [("GET", Scope.INSTANCES_READ, 200), ("POST", Scope.INSTANCES_WRITE, 201)],
    "api/instances/<slug:name>": [
        ("GET", Scope.INSTANCES_READ, 404),
        ("DELETE", Scope.INSTANCES_WRITE, 404),
    ],
    "api/instances/<slug:name>/pair": [("POST", Scope.INSTANCES_WRITE, 404)],
    "api/instances/<slug:name>/restart": [("POST", Scope.INSTANCES_WRITE, 404)],
    "api/instances/<slug:name>/logout": [("POST", Scope.INSTANCES_WRITE, 404)],
    "api/instances/<slug:name>/pause": [("POST", Scope.INSTANCES_WRITE, 404)],
    "api/instances/<slug:name>/resume": [("POST", Scope.INSTANCES_WRITE, 404)],
    "api/keys": [("GET", Scope.KEYS_ADMIN, 200), ("POST", Scope.KEYS_ADMIN, 201)],
    "api/keys/<slug:prefix>": [("GET", Scope.KEYS_ADMIN, 404), ("DELETE", Scope.KEYS_ADMIN, 404)],
    "api/keys/<slug:prefix>/rotate": [("POST", Scope.KEYS_ADMIN, 404)],
    "api/messages": [("GET", Scope.MESSAGES_READ, 200), ("POST", Scope.MESSAGES_WRITE, 400)],
    "api/media": [("POST", Scope.MESSAGES_WRITE, 400)],
    "api/numbers/check": [("POST", Scope.CONTACTS_READ, 200)],
    "api/usage": [("GET", Scope.USAGE_READ, 200)],
    "api/queues": [("GET", Scope.INSTANCES_READ, 200)],
    "api/contacts": [("GET", Scope.CONTACTS_READ, 200)],
    "api/contacts/import": [("POST", Scope.CONTACTS_WRITE, 200)],
    "api/contacts/export": [("GET", Scope.CONTACTS_READ, 200)],
    "api/contacts/<str:number>": [("GET", Scope.CONTACTS_READ, 404), ("PUT", Scope.CONTACTS_WRITE, 200)],
    "api/contacts/<str:number>/opt-in": [
        ("GET", Scope.CONTACTS_READ, 404),
        ("PUT", Scope.CONTACTS_WRITE, 200),
        ("DELETE", Scope.CONTACTS_WRITE, 200),
    ],
    "api/webhooks": [("GET", Scope.WEBHOOKS_READ, 200), ("POST", Scope.WEBHOOKS_WRITE, 201)],
    "api/webhooks/event-types": [("GET", Scope.WEBHOOKS_READ, 200)],
    "api/webhooks/<uuid:endpoint_id>": [
        ("GET", Scope.WEBHOOKS_READ, 404),
        ("PATCH", Scope.WEBHOOKS_WRITE, 404),
        ("DELETE", Scope.WEBHOOKS_WRITE, 404),
    ],
    "api/webhooks/<uuid:endpoint_id>/rotate-secret": [("POST", Scope.WEBHOOKS_WRITE, 404)],
    "api/webhooks/<uuid:endpoint_id>/test": [("POST", Scope.WEBHOOKS_WRITE, 404)],
    "api/webhooks/<uuid:endpoint_id>/replay": [("POST", Scope.WEBHOOKS_WRITE, 404)],
    "api/webhooks/<uuid:endpoint_id>/verify": [("POST", Scope.WEBHOOKS_READ, 404)],
    "api/webhooks/<uuid:endpoint_id>/deliveries": [("GET", Scope.WEBHOOKS_READ, 404)],
    "api/webhooks/<uuid:endpoint_id>/deliveries/<int:delivery_id>": [("GET", Scope.WEBHOOKS_READ, 404)],
    "api/webhooks/<uuid:endpoint_id>/deliveries/<int:delivery_id>/resend": [
        ("POST", Scope.WEBHOOKS_WRITE, 404)
    ],
    "api/templates": [("GET", Scope.TEMPLATES_READ, 200), ("POST", Scope.TEMPLATES_WRITE, 201)],
    "api/templates/<slug:name>": [("GET", Scope.TEMPLATES_READ, 404)],
    "api/templates/<slug:name>/versions": [
        ("GET", Scope.TEMPLATES_READ, 404),
        ("POST", Scope.TEMPLATES_WRITE, 404),
    ],
    "api/templates/<slug:name>/versions/<int:number>/publish": [("POST", Scope.TEMPLATES_WRITE, 404)],
    "api/templates/<slug:name>/archive": [("POST", Scope.TEMPLATES_WRITE, 404)],
    "api/templates/<slug:name>/restore": [("POST", Scope.TEMPLATES_WRITE, 404)],
    "api/templates/<slug:name>/preview": [("POST", Scope.TEMPLATES_READ, 404)],
    "api/messages/batch": [("POST", Scope.MESSAGES_WRITE, 200)],
    "api/messages/<message_id:message_id>/why": [("GET", Scope.MESSAGES_READ, 404)],
    "api/messages/<message_id:message_id>/cancel": [("POST", Scope.MESSAGES_WRITE, 404)],
    "api/messages/<message_id:message_id>": [("GET", Scope.MESSAGES_READ, 404)],
    "api/messages/<message_id:message_id>/events": [("GET", Scope.MESSAGES_READ, 404)],
}
CALLS = [(route, *call) for route, calls in GUARDED.items() for call in calls]
APART = {"api/media"}  # tests/instances/test_linking.py: it needs an account at Meta
SHOWN = [call for call in CALLS if call[0] not in APART]


def routes(resolver: Any, prefix: str = "") -> Iterator[str]:
    for entry in resolver.url_patterns:
        route = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from routes(entry, route)
        elif isinstance(entry, URLPattern):
            yield route


# What stands for each part of a route, and what is posted to it; TEXT where nothing is said.
PARTS: dict[str, Callable[[World, Message], str]] = {
    "<message_id:message_id>": lambda _world, message: message.pk,
    "<slug:name>": lambda world, _message: world.template.name,
    "<str:number>": lambda _world, _message: "+5511999990000",
    "<uuid:endpoint_id>": lambda world, _message: str(endpoint_of(world).pk),
    "<int:delivery_id>": lambda world, _message: str(delivery_of(endpoint_of(world)).pk),
    "<slug:prefix>": lambda world, _message: world.key.prefix,
    "<int:number>": lambda _world, _message: "1",
}
BODIES: dict[str, Any] = {
    "api/messages/batch": {"messages": [TEXT]},
    "api/contacts/<str:number>": {"name": "Ana"},
    "api/contacts/<str:number>/opt-in": {"source": "site"},
    "api/webhooks": {"url": "https://example.com/hook", "types": ["message.read"]},
    "api/webhooks/<uuid:endpoint_id>": {"description": "novo"},
    "api/webhooks/<uuid:endpoint_id>/rotate-secret": {},
    "api/webhooks/<uuid:endpoint_id>/test": {},
    "api/webhooks/<uuid:endpoint_id>/replay": {"since": "2026-11-28T00:00:00Z"},
    "api/webhooks/<uuid:endpoint_id>/verify": {"headers": {}, "body": ""},
    "api/webhooks/<uuid:endpoint_id>/deliveries/<int:delivery_id>/resend": {},
    "api/numbers/check": {"numbers": ["+5511999990000"]},
    "api/instances": {"name": "nova"},
    "api/instances/<slug:name>/pair": {},
    "api/keys": {"name": "outra", "scopes": ["messages:read"]},
    "api/keys/<slug:prefix>/rotate": {},
    "api/contacts/import": b"number,name",
    "api/templates": {"name": "novo", "category": "utility", "text": "Oi"},
    "api/templates/<slug:name>/versions": {"text": "Oi"},
    "api/templates/<slug:name>/archive": {},
    "api/templates/<slug:name>/restore": {},
    "api/templates/<slug:name>/preview": {"variables": {"nome": "Ana"}},
}


def endpoint_of(world: World) -> WebhookEndpoint:
    project = world.project
    return project.webhook_endpoints.first() or make_endpoint(project.tenant, project=project)


def delivery_of(endpoint: WebhookEndpoint) -> WebhookDelivery:
    return endpoint.deliveries.first() or tell(endpoint)[0]


def call(api: Api, method: str, route: str, world: World, message: Message) -> Any:
    path = f"/{route}"
    if route.startswith("api/instances/"):
        path = path.replace("<slug:name>", world.instance.name)
    for part, value in PARTS.items():
        path = path.replace(part, value(world, message)) if part in path else path
    if method in {"GET", "DELETE"}:
        return api.call(method, path)
    body = BODIES.get(route, TEXT)
    if isinstance(body, bytes):
        return api.call(method, path, body, content_type="text/csv")
    return api.call(method, path, json.dumps(body).encode())


def content(answer: Any) -> bytes:
    return answer.getvalue() if answer.streaming else answer.content


@pytest.fixture
def message(world: World) -> Message:
    Contact.objects.get_or_create(tenant=world.project.tenant, number="+5511999990000")
    return factories.make_message(world.project, world.instance)


def test_lists_every_route() -> None:
    found = {route for route in routes(get_resolver()) if route.startswith("api/")}
    assert found == OPEN | set(GUARDED)


@pytest.mark.parametrize(("route", "method", "scope", "strange"), SHOWN)
def test_shows_a_stranger_nothing(
    world: World, message: Message, route: str, method: str, scope: Scope, strange: int
) -> None:
    assert call(world.api, method, route, world, message).status_code in {200, 201, 202, 204, 502}
    before = Message.objects.count()

    answer = call(world.stranger, method, route, world, message)

    assert answer.status_code == strange
    assert message.pk.encode() not in content(answer)
    assert b"loja" not in content(answer) or route in PUBLIC
    assert Message.objects.count() == before


@pytest.mark.parametrize("other", ["other environment", "other project"])
@pytest.mark.parametrize(
    ("rest", "status"), [("", 200), ("/{id}", 404), ("/{id}/events", 404), ("/{id}/why", 404)]
)
def test_shows_messages_to_keys_of_their_project_and_environment_only(
    world: World, message: Message, other: str, rest: str, status: int
) -> None:
    _key, raw = {
        "other environment": lambda: factories.make_key(world.project, environment=Environment.TEST),
        "other project": lambda: factories.make_key(factories.make_project(world.project.tenant)),
    }[other]()
    answer = Api(raw).get("/api/messages" + rest.format(id=message.pk))
    assert answer.status_code == status
    assert message.pk.encode() not in content(answer)


@pytest.mark.parametrize(("route", "method", "scope", "strange"), CALLS)
@pytest.mark.parametrize("raw", ["", "wrong", "pilot_live_00000000_" + "x" * 43, "é", "x" * 5000])
def test_asks_for_a_key(
    world: World, message: Message, route: str, method: str, scope: Scope, strange: int, raw: str
) -> None:
    answer = call(Api(raw), method, route, world, message)
    assert (answer.status_code, error(answer)["code"]) == (401, "unauthenticated")
    assert answer["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(("route", "method", "scope", "strange"), CALLS)
def test_refuses_a_key_that_ended(
    world: World, message: Message, route: str, method: str, scope: Scope, strange: int
) -> None:
    now = timezone.now()
    _key, expired = factories.make_key(world.project, expires_at=now - timedelta(seconds=1))
    key, revoked = factories.make_key(world.project)
    keys.revoke(key, now=now)
    for raw in (expired, revoked):
        answer = call(Api(raw), method, route, world, message)
        assert (answer.status_code, error(answer)["code"]) == (401, "unauthenticated")


@pytest.mark.parametrize(("route", "method", "scope", "strange"), CALLS)
def test_names_the_scope_that_a_key_lacks(
    world: World, message: Message, route: str, method: str, scope: Scope, strange: int
) -> None:
    others = [other for other in Scope.values if other != scope]
    _key, raw = factories.make_key(world.project, scopes=others)
    answer = call(Api(raw), method, route, world, message)
    assert (answer.status_code, error(answer)["code"]) == (403, "forbidden")
    assert scope.value in error(answer)["message"]


def test_does_not_filter_by_the_names_of_strangers(world: World, message: Message) -> None:
    for parameters in ({"instance": "loja"}, {"template": "pedido_enviado"}, {"to": message.to}):
        assert world.stranger.get("/api/messages", **parameters).json()["messages"] == []


@pytest.mark.parametrize(
    "part", [{"text": "a", "instance": "loja"}, {"template": "pedido_enviado", "variables": {"nome": "Ana"}}]
)
def test_does_not_send_with_the_instance_or_template_of_a_stranger(
    world: World, part: dict[str, Any]
) -> None:
    answer = world.stranger.post("/api/messages", {"to": "+5511999990000"} | part)
    assert answer.status_code == 400
    assert not Message.objects.exists()
