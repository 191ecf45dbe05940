"""The web process's door, over real HTTP: bodies with and without a length, and nothing that crashes it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
from django.conf import settings
from launcher.ports import free_port

from tests.factories import make_key
from tests.sandbox.emulator import eventually

LIMIT = settings.DATA_UPLOAD_MAX_MEMORY_SIZE


@pytest.fixture
def web(transactional_db: None) -> Iterator[httpx.Client]:
    """uvicorn on the tests' database, and a client with a key."""
    from tests.product.running import environment

    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "pilot.asgi:application", "--port", str(port), "--no-access-log"],
        env=environment(),
        cwd=settings.BASE_DIR,
    )
    _key, raw = make_key()
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"apikey": raw}, timeout=10)
    eventually(lambda: _alive(client), within=20)
    yield client
    client.close()
    process.terminate()
    process.wait(timeout=10)


def _alive(client: httpx.Client) -> bool:
    try:
        return client.get("/livez").is_success
    except httpx.HTTPError:
        return False


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
