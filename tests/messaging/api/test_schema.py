"""The API's description of itself."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator

from pilot.examples import EXAMPLES
from pilot.requests import API_VERSION

FORMAT_CHECKER = Draft202012Validator.FORMAT_CHECKER
CODE = re.compile(r"""^    (?:default_)?code = "([a-z_]+)"$""", re.MULTILINE)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return dict(SchemaGenerator().get_schema(request=None, public=True))


def test_is_valid_and_complete() -> None:
    call_command("spectacular", validate=True, fail_on_warn=True, stdout=StringIO(), stderr=StringIO())


def test_describes_every_field(schema: dict[str, Any]) -> None:
    silent = [
        f"{name}.{field}"
        for name, component in schema["components"]["schemas"].items()
        for field, about in component.get("properties", {}).items()
        if not about.get("description") and name != "Error"
    ]
    assert silent == []


def operations(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in schema["paths"].values() for operation in path.values()]


def test_names_the_error_answers_of_every_operation(schema: dict[str, Any]) -> None:
    for operation in operations(schema):
        answers = operation["responses"]
        assert {"401", "403", "406", "429", "503"} <= set(answers)
        refusals = [answer for status, answer in answers.items() if status >= "400"]
        assert {tuple(answer["content"]) for answer in refusals} == {("application/json",)}
        assert all(answer["description"] for answer in answers.values())
        if "application/json" in operation.get("requestBody", {}).get("content", {}):
            assert {"400", "413", "415"} <= set(answers)


def test_explains_every_operation(schema: dict[str, Any]) -> None:
    ids = [operation["operationId"] for operation in operations(schema)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)+", each) for each in ids)
    for operation in operations(schema):
        assert operation["summary"]
        assert operation["description"]
        assert len(operation["tags"]) == 1
        assert operation["security"] == [{"apikey": []}, {"bearer": []}]
        assert all(parameter["description"] for parameter in operation.get("parameters", ()))
    assert {tag["name"] for tag in schema["tags"]} == {each["tags"][0] for each in operations(schema)}


def test_shows_what_to_send(schema: dict[str, Any]) -> None:
    for operation in operations(schema):
        for kind, body in operation.get("requestBody", {}).get("content", {}).items():
            name = body["schema"].get("$ref", "").rpartition("/")[2]
            shown = body.get("examples") or schema["components"]["schemas"].get(name, {}).get("examples")
            assert shown or kind != "application/json", operation["operationId"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_has_examples_that_fit(schema: dict[str, Any], name: str) -> None:
    root = schema | {"$ref": f"#/components/schemas/{name}"}
    Draft202012Validator(root, format_checker=FORMAT_CHECKER).validate(EXAMPLES[name])


def test_has_request_examples_that_fit(schema: dict[str, Any]) -> None:
    for operation in operations(schema):
        for body in operation.get("requestBody", {}).get("content", {}).values():
            for example in body.get("examples", {}).values():
                Draft202012Validator(schema | body["schema"]).validate(example["value"])


def test_lists_every_error_code(schema: dict[str, Any]) -> None:
    """What is written anywhere as the code of a refusal."""
    code = schema["components"]["schemas"]["ErrorBody"]["properties"]["code"]
    written = {
        found[1]
        for app in ("accounts", "billing", "instances", "messaging", "webhooks", "pilot")
        for path in (settings.BASE_DIR / app).rglob("*.py")
        for found in CODE.finditer(path.read_text())
    }
    assert {"opt_in_required", "body_too_large"} <= written
    assert written <= set(code["enum"])
    assert all(f"* `{each}`: " in code["description"] for each in code["enum"])
    assert not re.search(r": \d{3}: *$", code["description"], re.MULTILINE)


def test_names_its_version(schema: dict[str, Any]) -> None:
    assert schema["openapi"].startswith("3.1.")
    assert schema["info"]["version"] == API_VERSION
    assert API_VERSION in schema["info"]["description"]


def test_serves_the_schema(db: None) -> None:
    answer = Client().get("/api/schema")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")
    assert "/api/messages" in answer.json()["paths"]
    known = Client().get("/api/schema", headers={"If-None-Match": answer["ETag"]})
    assert (known.status_code, known.content) == (304, b"")


def test_makes_the_schema_once_for_each_language(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    Client().get("/api/schema")
    monkeypatch.setattr(SchemaGenerator, "get_schema", None)
    assert Client().get("/api/schema").status_code == 200


class Links(HTMLParser):
    """What a page makes a browser fetch."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in {"src", "href", "srcset", "data"}]


def test_serves_a_page_that_loads_nothing_from_elsewhere(db: None) -> None:
    client = Client()
    page = client.get("/api/docs").content.decode()
    links = Links(page).found
    assert any("swagger-ui" in link for link in links)
    assert all(link.startswith("/") and not link.startswith("//") for link in links)
    script = client.get(next(link for link in links if link.startswith("/api/docs"))).content.decode()
    assert "/api/schema" in script
    assert re.findall(r"""["'(](?:https?:)?//""", page + script) == []
