"""What every route of the API does alike: all in the table of test_isolation.py, so that no new one is forgotten."""

from __future__ import annotations

from typing import Any

import pytest
import time_machine
from django.utils import timezone

from messaging.models import Message
from pilot.api import cursor_of
from pilot.requests import API_VERSION
from tests.messaging.api.conftest import World
from tests.messaging.api.test_isolation import BODIES, CALLS, GUARDED, SHOWN, call, message
from tests.messaging.api.test_messages import TEXT, error

__all__ = ["message"]

GETS = [(route, method) for route, method, _scope, _strange in CALLS if method == "GET"]
WITHOUT_ETAG = {"api/contacts/export"}  # it streams


class Asking:
    """The world's key, with other headers, another path or another body than usual."""

    def __init__(self, world: World, *, end: str = "", method: str = "", **headers: str) -> None:
        self._api, self._end, self._method, self._headers = world.api, end, method, headers

    def call(self, method: str, path: str, raw: bytes = b"", **headers: str) -> Any:
        return self._api.call(self._method or method, path + self._end, raw, **headers | self._headers)


def takes_json(route: str, method: str) -> bool:
    """Whether a body is read, and is JSON."""
    return method not in {"GET", "DELETE"} and isinstance(BODIES.get(route), dict) and bool(BODIES[route])


def test_carries_the_same_headers_everywhere(world: World, message: Message) -> None:
    headers = {"X-Request-Id": "mine-1", "Origin": "https://elsewhere.example"}
    asking = [
        Asking(world, **headers),
        Asking(world, method="PROPFIND", **headers),
        Asking(world, end="/", **headers),
    ]
    for route, method, *_rest in SHOWN:
        for each in asking:
            answer = call(each, method, route, world, message)
            assert answer["X-Request-Id"] == "mine-1"
            assert answer["Cache-Control"] == "no-store"
            assert answer["Pilot-Version"] == API_VERSION
            assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


def test_says_by_options_which_methods_there_are(world: World, message: Message) -> None:
    for route, calls in GUARDED.items():
        methods = {method for method, *_rest in calls}
        for method, status in (("OPTIONS", 204), ("PROPFIND", 405)):
            answer = call(Asking(world, method=method), "GET", route, world, message)
            assert answer.status_code == status, route
            assert set(answer["Allow"].split(", ")) == methods | {"OPTIONS"} | (
                {"HEAD"} if "GET" in methods else set()
            )
            assert answer.content == b"" or error(answer)["code"] == "method_not_allowed"


def test_tells_strangers_nothing_by_options(world: World, message: Message) -> None:
    world.api.raw_key = "wrong"
    for route in GUARDED:
        assert call(Asking(world, method="OPTIONS"), "GET", route, world, message).status_code == 401


def test_names_parameters_that_it_does_not_know(world: World, message: Message) -> None:
    for route, method, *_rest in CALLS:
        answer = call(Asking(world, end="?colour=red&_=1"), method, route, world, message)
        assert answer.status_code == 400, route
        assert set(error(answer)["fields"]) >= {"colour", "_"}
    assert Message.objects.count() == 1


def test_has_nothing_behind_a_slash(world: World, message: Message) -> None:
    for route, method, *_rest in CALLS:
        answer = call(Asking(world, end="/"), method, route, world, message)
        assert (answer.status_code, error(answer)["code"]) == (404, "not_found")


def test_speaks_json_only(world: World, message: Message) -> None:
    for route, method, *_rest in CALLS:
        answer = call(Asking(world, Accept="application/xml"), method, route, world, message)
        assert (answer.status_code, error(answer)["code"]) == (406, "not_acceptable"), route
        assert answer["Content-Type"] == "application/json"


def test_takes_json_only(world: World, message: Message) -> None:
    for route, method, *_rest in CALLS:
        if takes_json(route, method):
            answer = call(Asking(world, content_type="text/plain"), method, route, world, message)
            assert (answer.status_code, error(answer)["code"]) == (415, "unsupported_media_type"), route


def test_takes_no_more_than_it_can_hold(world: World, message: Message, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 5
    for route, method, *_rest in CALLS:
        if takes_json(route, method):
            answer = call(Asking(world), method, route, world, message)
            assert (answer.status_code, error(answer)["code"]) == (413, "body_too_large"), route


def test_answers_head_as_get_without_a_body(world: World, message: Message) -> None:
    varying = {"X-Request-Id", "RateLimit", "ETag"}
    for route, method in GETS:
        get, head = (
            call(Asking(world, method=each), method, route, world, message) for each in ("GET", "HEAD")
        )
        assert head.status_code == get.status_code == 200
        assert b"".join(head) == b""
        assert {*get.headers} == {*head.headers}
        assert {n: v for n, v in get.headers.items() if n not in varying} == {
            n: v for n, v in head.headers.items() if n not in varying
        }


def test_says_when_nothing_has_changed(world: World, message: Message) -> None:
    for route, method in GETS:
        if route in WITHOUT_ETAG:
            continue
        with time_machine.travel(timezone.now(), tick=False):  # forecasts change with the moment
            first = call(Asking(world), method, route, world, message)
            again = call(Asking(world, If_None_Match=first["ETag"]), method, route, world, message)
        assert (again.status_code, again.content) == (304, b""), route
        assert again["ETag"] == first["ETag"]
        assert {"Pilot-Version", "Cache-Control", "RateLimit", "X-Request-Id"} <= set(again.headers)


def test_says_when_something_has_changed(world: World) -> None:
    first = world.api.get("/api/messages")
    world.api.post("/api/messages", TEXT)
    changed = world.api.call("GET", "/api/messages", If_None_Match=first["ETag"])
    assert changed.status_code == 200
    assert changed["ETag"] != first["ETag"]


def test_keeps_etags_to_what_was_read(world: World) -> None:
    assert "ETag" not in world.api.post("/api/messages", TEXT).headers
    assert "ETag" not in world.api.get("/api/messages/unknown").headers


def test_knows_its_own_version(world: World) -> None:
    assert world.api.call("GET", "/api/keys", Pilot_Version=API_VERSION).status_code == 200
    answer = world.api.call("GET", "/api/keys", Pilot_Version="2020-01-01")
    assert (answer.status_code, error(answer)["code"]) == (400, "unknown_api_version")
    assert set(error(answer)["fields"]) == {"Pilot-Version"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"to": 5511999990000}, "to"),
        ({"urgent": "true"}, "urgent"),
        ({"urgent": 1}, "urgent"),
        ({"metadata": {"order": 1042}}, "metadata"),
        ({"category": 1}, "category"),
        ({"buttons": [{"kind": "reply", "label": 1}]}, "buttons"),
    ],
)
def test_converts_no_types(world: World, body: dict[str, Any], field: str) -> None:
    answer = world.api.post("/api/messages", TEXT | body)
    assert (answer.status_code, set(error(answer)["fields"])) == (400, {field})


def test_converts_no_numbers(world: World) -> None:
    path = f"/api/keys/{world.key.prefix}/rotate"
    answer = world.api.post(path, {"overlap_seconds": "60"})
    assert (answer.status_code, set(error(answer)["fields"])) == (400, {"overlap_seconds"})
    assert world.api.post(path, {"overlap_seconds": 60.0}).status_code == 201


@pytest.mark.parametrize(
    "cursor", ["0", "YQ==", "YQ..", ".Y.Q", "Y Q", "é", "YQ" + "." * 600, cursor_of("a" * 400)]
)
def test_takes_no_cursor_that_it_did_not_give_out(world: World, cursor: str) -> None:
    answer = world.api.get("/api/instances", cursor=cursor)
    assert (answer.status_code, set(error(answer)["fields"])) == (400, {"cursor"})
    assert world.api.get("/api/instances", cursor=cursor_of("a")).status_code == 200
