"""The web process's door, over real HTTP: bodies with and without a length, and nothing that crashes it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import httpx
import pytest
from django.conf import settings

from tests.factories import make_key
from tests.webs import running_web

LIMIT = settings.DATA_UPLOAD_MAX_MEMORY_SIZE


@pytest.fixture
def web(transactional_db: None) -> Iterator[httpx.Client]:
    _key, raw = make_key()
    with running_web(raw) as client:
        yield client


def chunks(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), 65536):
        yield body[start : start + 65536]


def test_takes_bodies_of_either_kind_and_refuses_what_is_too_large(web: httpx.Client) -> None:
    body = json.dumps({"to": "+5511999990000", "template": "nenhum"}).encode()
    large = b'{"text": "' + b"x" * LIMIT + b'"}'
    headers = {"Content-Type": "application/json"}

    answers = {
        name: web.post("/api/messages", content=content, headers=headers)
        for name, content in {
            "whole": body,
            "chunked": chunks(body),
            "whole and large": large,
            "chunked and large": chunks(large),
        }.items()
    }

    seen = {name: (answer.status_code, answer.json()["error"]["code"]) for name, answer in answers.items()}
    assert seen == {
        "whole": (400, "unknown_template"),
        "chunked": (400, "unknown_template"),
        "whole and large": (413, "body_too_large"),
        "chunked and large": (413, "body_too_large"),
    }


def test_survives_clients_that_leave_in_the_middle(web: httpx.Client) -> None:
    address = (web.base_url.host, web.base_url.port)
    for request in (
        b"POST /api/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
        b"GET / HT",
        b"\x00\xff",
    ):
        with socket.create_connection(address) as client:
            client.sendall(request)

    assert all(web.get("/livez").is_success for _ in range(50))
