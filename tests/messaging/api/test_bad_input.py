"""Whatever a client sends, the answer is the envelope, and nothing is accepted."""

from __future__ import annotations

from typing import Any

import pytest

from messaging.models import Message
from tests.messaging.api.conftest import World
from tests.messaging.api.test_messages import TEXT, error

BUTTON = {"kind": "reply", "label": "Sim", "value": "yes"}
DEEP = b'{"metadata": ' + b'{"a": ' * 30 + b"1" + b"}" * 30 + b"}"

MALFORMED = {
    "nothing but space": b"  ",
    "a fragment": b'{"to": ',
    "not JSON": b"to=+5511999990000",
    "two objects": b"{}{}",
    "a list": b"[]",
    "a text": b'"Hello"',
    "null": b"null",
    "a number": b"1",
    "wrong UTF-8": b'{"to": "\xff\xfe"}',
    "Latin-1": '{"text": "Olá"}'.encode("latin-1"),
    "UTF-16": '{"text": "Olá"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"text": "a"}',
    "NUL": b'{"text": "a\\u0000b"}',
    "NUL in a name": b'{"a\\u0000": 1}',
    "a raw NUL": b'{"text": "a\x00b"}',
    "half a surrogate pair": b'{"text": "a\\ud83d"}',
    "half a surrogate pair in a name": b'{"variables": {"\\udc00": "a"}}',
    "NaN": b'{"variables": {"a": NaN}}',
    "infinity": b'{"variables": {"a": -Infinity}}',
    "a number beyond all floats": b'{"variables": {"a": 1e999}}',
    "too deep": DEEP,
    "much too deep": b'{"metadata": ' + b"[" * 100_000,
    "a number of 5,000 digits": b'{"to": ' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED)
def test_refuses_a_body_that_is_no_object(world: World, raw: bytes) -> None:
    answer = world.api.post("/api/messages", raw)
    assert (answer.status_code, error(answer)["code"]) == (400, "malformed_json")


FAULTY: list[tuple[dict[str, Any], str]] = [
    ({"to": None}, "to"),
    ({"to": []}, "to"),
    ({"to": {"number": "1"}}, "to"),
    ({"to": ""}, "to"),
    ({"to": "hello"}, "to"),
    ({"to": True}, "to"),
    ({"to": 10**400}, "to"),
    ({"to": "+5511999990000" * 10}, "to"),
    ({"text": ""}, "text"),
    ({"text": "   "}, "text"),
    ({"text": None}, "text"),
    ({"text": ["a"]}, "text"),
    ({"text": "x" * 4097}, "text"),
    ({"text": "x" * 10_000}, "text"),
    ({"text": "a\x1b[31m"}, "text"),
    ({"title": "t" * 61}, "title"),
    ({"title": "a\nb"}, "title"),
    ({"footer": "f" * 61}, "footer"),
    ({"buttons": {}}, "buttons"),
    ({"buttons": "Sim"}, "buttons"),
    ({"buttons": [1]}, "buttons"),
    ({"buttons": [{"kind": "reply"}]}, "buttons"),
    ({"buttons": [BUTTON | {"kind": "pix"}]}, "buttons"),
    ({"buttons": [BUTTON | {"label": "l" * 21}]}, "buttons"),
    ({"buttons": [BUTTON | {"extra": 1}]}, "buttons"),
    ({"buttons": [BUTTON] * 2}, "buttons"),
    ({"buttons": [BUTTON | {"label": str(n)} for n in range(4)]}, "buttons"),
    ({"buttons": [BUTTON | {"kind": "url"}]}, "buttons"),
    ({"category": "session"}, "category"),
    ({"category": "spam"}, "category"),
    ({"category": 1}, "category"),
    ({"category": {}}, "category"),
    ({"instance": "nowhere"}, "instance"),
    ({"instance": None}, "instance"),
    ({"instance": "i" * 61}, "instance"),
    ({"urgent": "perhaps"}, "urgent"),
    ({"urgent": []}, "urgent"),
    ({"urgent": 10**400}, "urgent"),
    ({"deliver_until": "soon"}, "deliver_until"),
    ({"deliver_until": "2020-01-01T00:00:00Z"}, "deliver_until"),
    ({"deliver_until": "2099-01-01T00:00:00"}, "deliver_until"),
    ({"deliver_until": "2099-13-01T00:00:00Z"}, "deliver_until"),
    ({"deliver_until": "9999-12-31T23:59:59-12:00"}, "deliver_until"),
    ({"deliver_until": "0001-01-01T00:00:00+12:00"}, "deliver_until"),
    ({"deliver_until": 1}, "deliver_until"),
    ({"deliver_until": {}}, "deliver_until"),
    ({"skip_opt_in_validation": "x"}, "skip_opt_in_validation"),
    ({"metadata": []}, "metadata"),
    ({"metadata": "a"}, "metadata"),
    ({"metadata": {"a": None}}, "metadata"),
    ({"metadata": {"a": ["b"]}}, "metadata"),
    ({"metadata": {"a": "x" * 501}}, "metadata"),
    ({"metadata": {"n" * 41: "x"}}, "metadata"),
    ({"metadata": {str(n): "x" for n in range(21)}}, "metadata"),
    ({"colour": "red"}, "colour"),
    ({"id": "mine"}, "id"),
    ({"": 1}, ""),
    ({"template": "pedido_enviado"}, "text"),
    ({"variables": {}}, "variables"),
]


@pytest.mark.parametrize(("part", "field"), FAULTY, ids=lambda value: str(value)[:50])
def test_names_the_field_that_is_wrong(world: World, part: dict[str, Any], field: str) -> None:
    answer = world.api.post("/api/messages", TEXT | part)
    assert answer.status_code == 400
    assert field in error(answer)["fields"]
    assert not Message.objects.exists()


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, "nome"),
        ({"nome": None}, "nome"),
        ({"nome": ["Ana"]}, "nome"),
        ({"nome": True}, "nome"),
        ({"nome": "a\x1bb"}, "nome"),
        ({"nome": "Ana", "idade": 30}, "idade"),
    ],
)
def test_names_the_variable_that_is_wrong(world: World, variables: dict[str, Any], name: str) -> None:
    body = {"to": "+5511999990000", "template": "pedido_enviado", "variables": variables}
    answer = world.api.post("/api/messages", body)
    assert (answer.status_code, error(answer)["code"]) == (400, "invalid_variables")
    assert set(error(answer)["fields"]["variables"]) == {name}


def test_asks_for_a_recipient(world: World) -> None:
    assert set(error(world.api.post("/api/messages", {}))["fields"]) == {"to"}


def test_asks_for_something_to_say(world: World) -> None:
    assert set(error(world.api.post("/api/messages", {"to": TEXT["to"]}))["fields"]) == {"text"}


def test_refuses_a_body_that_is_too_large(world: World) -> None:
    answer = world.api.post("/api/messages", TEXT | {"text": "x" * 5_000_000})
    assert (answer.status_code, error(answer)["code"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "text/xml"],
)
def test_takes_json_only(world: World, kind: str) -> None:
    answer = world.api.post("/api/messages", TEXT, content_type=kind)
    assert (answer.status_code, error(answer)["code"]) == (415, "unsupported_media_type")


def test_takes_json_with_a_charset(world: World) -> None:
    answer = world.api.post("/api/messages", TEXT, content_type="application/json; charset=utf-8")
    assert answer.status_code == 202


def test_speaks_json_only(world: World) -> None:
    answer = world.api.call("GET", "/api/messages", Accept="application/xml")
    assert (answer.status_code, error(answer)["code"]) == (406, "not_acceptable")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/api/messages", {"GET", "POST", "HEAD"}),
        ("PUT", "/api/messages/x", {"GET", "HEAD"}),
        ("PATCH", "/api/messages/x/events", {"GET", "HEAD"}),
        ("POST", "/api/queues", {"GET", "HEAD"}),
        ("BREW", "/api/messages", {"GET", "POST", "HEAD"}),
    ],
)
def test_says_which_methods_there_are(world: World, method: str, path: str, allowed: set[str]) -> None:
    answer = world.api.call(method, path)
    assert (answer.status_code, error(answer)["code"]) == (405, "method_not_allowed")
    assert set(answer["Allow"].split(", ")) - {"OPTIONS"} <= allowed


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "path", ["/api/", "/api/nothing", "/api/messages/", "/api/messages/x/y", "/api//messages"]
)
def test_knows_nothing_at_other_addresses(world: World, method: str, path: str) -> None:
    answer = world.api.call(method, path)
    assert (answer.status_code, error(answer)["code"]) == (404, "not_found")
