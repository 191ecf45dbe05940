"""The API's description of itself."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from drf_spectacular.generators import SchemaGenerator


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


def test_names_the_error_answers_of_every_operation(schema: dict[str, Any]) -> None:
    for path in schema["paths"].values():
        for operation in path.values():
            assert {"401", "403", "503"} <= set(operation["responses"])


def test_serves_the_schema(db: None) -> None:
    answer = Client().get("/api/schema", headers={"accept": "application/json"})
    assert answer.status_code == 200
    assert "/api/messages" in answer.json()["paths"]


def test_serves_a_page_that_loads_nothing_from_elsewhere(db: None) -> None:
    page = Client().get("/api/docs").content.decode()
    assert "swagger-ui" in page
    assert re.findall(r"""(?:src|href)=["'](https?:)?//""", page) == []
