"""The one envelope, also where no API view answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client
from pytest_django import Settings

from pilot.errors import envelope
from tests import factories


class BrokenMiddleware:
    """Fails before any view is reached."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        pass

    def __call__(self, request: HttpRequest) -> HttpResponse:
        raise RuntimeError("secret detail")


def get(path: str, **headers: str) -> Any:
    return Client(raise_request_exception=False).get(path, headers=headers)


def test_leaves_out_fields_when_there_are_none() -> None:
    assert envelope(code="c", message="m", request_id="r") == {
        "error": {"code": "c", "message": "m", "request_id": "r"}
    }


def test_names_the_request_as_the_client_did(db: None) -> None:
    answer = get("/api/messages", x_request_id="client-7")
    assert answer["X-Request-Id"] == "client-7"
    assert answer.json()["error"]["request_id"] == "client-7"


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "é", "<script>"])
def test_makes_a_name_where_the_client_has_none_that_is_harmless(db: None, given: str) -> None:
    answer = get("/api/nothing", x_request_id=given)
    assert answer["X-Request-Id"] not in {"", given}
    assert answer.json()["error"]["request_id"] == answer["X-Request-Id"]


@pytest.mark.parametrize("path", ["/api/messages", "/api/nothing"])
def test_lets_nobody_keep_an_error(db: None, path: str) -> None:
    assert get(path)["Cache-Control"] == "no-store"


def test_says_nothing_about_a_fault_of_ours(db: None) -> None:
    _key, raw = factories.make_key()

    def fail(*_details: Any) -> None:
        raise RuntimeError("secret detail")

    with connection.execute_wrapper(fail):
        answer = get("/api/messages", apikey=raw)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert b"secret" not in answer.content


def test_keeps_the_envelope_when_no_view_is_reached(settings: Settings) -> None:
    settings.MIDDLEWARE = ["pilot.requests.RequestIdMiddleware", "tests.pilot.test_errors.BrokenMiddleware"]
    answer = get("/api/messages")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert answer.json()["error"]["request_id"] == answer["X-Request-Id"]
    assert b"secret" not in answer.content


def test_keeps_pages_pages(settings: Settings) -> None:
    settings.MIDDLEWARE = ["tests.pilot.test_errors.BrokenMiddleware"]
    answer = get("/anything")
    assert (answer.status_code, answer["Content-Type"]) == (500, "text/html; charset=utf-8")


def test_keeps_the_envelope_for_a_host_it_does_not_serve(settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["pilot.example"]
    answer = get("/api/messages", host="evil.example")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
    assert get("/accounts/login/", host="evil.example")["Content-Type"].startswith("text/html")


@pytest.mark.django_db(transaction=True)
def test_asks_to_come_back_when_the_database_is_gone() -> None:
    _key, raw = factories.make_key()
    _cut(connection)

    answer = get("/api/messages", apikey=raw)

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert int(answer["Retry-After"]) > 0
    connection.close()
    assert get("/api/messages", apikey=raw).status_code == 200


def _cut(ours: Any) -> None:
    """Ends our connection from the server's side."""
    with ours.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        process = cursor.fetchone()[0]
    parameters = {
        name: ours.get_connection_params()[name] for name in ("host", "port", "user", "password", "dbname")
    }
    with psycopg.connect(**parameters) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [process])
