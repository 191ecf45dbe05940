"""The template API."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections

from accounts.models import AuditEntry
from messaging import templates
from messaging.models import Message, Template
from tests import factories
from tests.messaging.api.conftest import World
from tests.messaging.api.test_messages import error

pytestmark = pytest.mark.django_db

NEW = {"name": "boas_vindas", "category": "utility", "text": "Olá {{nome}}, tudo bem?"}
SEND = {"to": "+5511999990000", "template": "boas_vindas", "variables": {"nome": "Ana"}}


def create(world: World, **fields: Any) -> Any:
    return world.api.post("/api/templates", NEW | fields)


def test_makes_a_template_that_can_be_sent_at_once(world: World) -> None:
    answer = create(world)
    assert answer.status_code == 201
    body = answer.json()
    assert (body["name"], body["category"], body["status"]) == ("boas_vindas", "utility", "active")
    assert body["current_version"]["number"] == 1
    assert body["current_version"]["variables"] == ["nome"]
    assert world.api.get("/api/templates/boas_vindas").json() == body
    assert world.api.post("/api/messages", SEND).status_code == 202
    assert AuditEntry.objects.get().action == "template.created"


def test_keeps_the_version_of_messages_that_exist(world: World) -> None:
    create(world)
    world.api.post("/api/messages", SEND)
    added = world.api.post("/api/templates/boas_vindas/versions", {"text": "Oi {{nome}}!", "publish": True})
    world.api.post("/api/messages", SEND)

    assert (added.status_code, added.json()["number"]) == (201, 2)
    texts = Message.objects.order_by("id").values_list("content__text", "template_version__number")
    assert list(texts) == [("Olá Ana, tudo bem?", 1), ("Oi Ana!", 2)]


def test_sends_nothing_of_a_version_that_is_not_published(world: World) -> None:
    assert create(world, publish=False).json()["current_version"] is None
    assert error(world.api.post("/api/messages", SEND))["code"] == "unknown_template"
    world.api.post("/api/templates/boas_vindas/versions", {"text": "Oi {{nome}}!"})

    published = world.api.post("/api/templates/boas_vindas/versions/2/publish", {})
    assert (published.status_code, published.json()["current_version"]["number"]) == (200, 2)
    assert world.api.post("/api/templates/boas_vindas/versions/1/publish", {}).status_code == 200
    assert world.api.post("/api/messages", SEND).status_code == 202
    assert Message.objects.get().content == {"text": "Olá Ana, tudo bem?"}
    assert world.api.post("/api/templates/boas_vindas/versions/9/publish", {}).status_code == 404


def test_archives_and_restores(world: World) -> None:
    create(world)
    for _ in range(2):
        assert world.api.post("/api/templates/boas_vindas/archive", {}).json()["status"] == "archived"
    assert error(world.api.post("/api/messages", SEND))["code"] == "unknown_template"
    assert error(create(world))["code"] == "name_taken"
    assert world.api.post("/api/templates/boas_vindas/restore", {}).json()["status"] == "active"
    assert world.api.post("/api/messages", SEND).status_code == 202
    actions = list(AuditEntry.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["template.created", "template.archived", "template.restored"]


@pytest.mark.parametrize(
    ("fields", "status", "field"),
    [
        ({"name": "com espaço"}, 400, "name"),
        ({"name": ""}, 400, "name"),
        ({"name": "a" * 81}, 400, "name"),
        ({"name": "pedido_enviado"}, 409, "name"),
        ({"category": "spam"}, 400, "category"),
        ({"text": ""}, 400, "text"),
        ({"text": "Olá {{ nome"}, 400, "text"),
        ({"text": "a", "content": {"type": "text"}}, 400, "content"),
        ({"buttons": [{"kind": "x", "label": "a", "value": "b"}]}, 400, "buttons"),
        ({"colour": "red"}, 400, "colour"),
    ],
)
def test_names_what_is_wrong(world: World, fields: dict[str, Any], status: int, field: str) -> None:
    answer = create(world, **fields)
    assert (answer.status_code, set(error(answer)["fields"])) == (status, {field})
    assert Template.objects.count() == 1


def test_lists_by_name_and_pages(world: World) -> None:
    for name in ("c", "a", "b"):
        create(world, name=name)
    world.api.post("/api/templates/b/archive", {})
    first = world.api.get("/api/templates", limit=2).json()
    second = world.api.get("/api/templates", limit=2, cursor=first["next_cursor"]).json()
    assert [each["name"] for each in first["templates"] + second["templates"]] == [
        "a",
        "b",
        "c",
        "pedido_enviado",
    ]
    assert second["next_cursor"] is None
    archived = world.api.get("/api/templates", status="archived").json()["templates"]
    assert [each["name"] for each in archived] == ["b"]


def test_lists_versions_newest_first(world: World) -> None:
    create(world)
    for number in (2, 3):
        world.api.post("/api/templates/boas_vindas/versions", {"text": f"Versão {number}"})
    first = world.api.get("/api/templates/boas_vindas/versions", limit=2).json()
    second = world.api.get("/api/templates/boas_vindas/versions", limit=2, cursor=first["next_cursor"]).json()
    assert [each["number"] for each in first["versions"] + second["versions"]] == [3, 2, 1]
    for bad in ("x", first["next_cursor"] + "AAAA", "LTE"):
        answer = world.api.get("/api/templates/boas_vindas/versions", cursor=bad)
        assert (answer.status_code, set(error(answer)["fields"])) == (400, {"cursor"})


def test_previews_a_message(world: World) -> None:
    create(world, category="marketing", text="{{nome}}, veja bit.ly/abc " + "x" * 1000)
    shown = world.api.post("/api/templates/boas_vindas/preview", {"variables": {"nome": "Ana"}}).json()
    assert shown["content"]["text"].startswith("Ana, veja bit.ly/abc")
    assert shown["length"] == len(shown["content"]["text"])
    assert len(shown["warnings"]) == 4
    world.api.post("/api/templates/boas_vindas/versions", {"text": "Olá {{nome}}. Responda PARAR para sair."})
    better = {"variables": {"nome": "Ana"}, "version": 2}
    assert world.api.post("/api/templates/boas_vindas/preview", better).json()["warnings"] == []
    for body, field in [({"variables": {"x": "1"}}, "variables"), ({"version": 0}, "version")]:
        answer = world.api.post("/api/templates/boas_vindas/preview", body)
        assert (answer.status_code, set(error(answer)["fields"])) == (400, {field})


@pytest.mark.django_db(transaction=True)
def test_numbers_versions_without_gaps_when_many_are_added_at_once() -> None:
    template = factories.make_template(factories.make_project())

    def add(number: int) -> int:
        try:
            return templates.add_version(template, content={"text": f"Versão {number}"}).number
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(add, range(12))) == list(range(2, 14))


@pytest.mark.django_db(transaction=True)
def test_makes_one_template_of_a_name_when_many_ask_at_once() -> None:
    project = factories.make_project()

    def make(_number: int) -> str:
        try:
            templates.create(project=project, name="a", category="utility", content={"text": "Oi"})
        except templates.NameTaken:
            return "taken"
        finally:
            connections.close_all()
        return "made"

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(make, range(6))) == ["made", *["taken"] * 5]
