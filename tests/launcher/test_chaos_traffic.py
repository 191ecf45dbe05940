"""Clients that ask until they are answered, and remember what they were promised."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from launcher.chaos.schedule import Request
from launcher.chaos.traffic import Traffic, marked

UNTIL = "2026-11-29T12:00:00.500000Z"
ACCEPTED = (202, {"id": "m1", "deliver_until": UNTIL})
CUT = (0, {})


def refusal(status: int, code: str) -> tuple[int, dict[str, Any]]:
    return status, {"error": {"code": code}}


@dataclass
class Api:
    """Answers what the script says, in order, then accepts; keeps key and body of every request."""

    script: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    asked: list[tuple[str | None, dict[str, Any]]] = field(default_factory=list)
    port: int = 0

    def answer(self) -> tuple[int, dict[str, Any]]:
        return self.script.pop(0) if self.script else ACCEPTED


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            api.asked.append((self.headers["Idempotency-Key"], body))
            status, answer = api.answer()
            if status:
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, *_args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.port = server.server_port
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield api
    server.shutdown()
    server.server_close()


def request(number: int = 1, **fields: Any) -> Request:
    values: dict[str, Any] = {
        "number": number,
        "at": 0.0,
        "project": 0,
        "instance": 0,
        "to": "+5511980000000",
        "category": "otp",
        "shape": "text",
        "urgent": False,
        "refuse_if_late": False,
        "within": None,
    }
    return Request(**values | fields)


def send(api: Api, *requests: Request) -> Traffic:
    """Lets the requests be answered."""
    traffic = Traffic(requests, port=api.port, keys=["secret"], names=["i0"])
    traffic.start()
    for thread in traffic._threads:
        thread.join(timeout=20)
    assert not traffic.busy()
    return traffic


def test_asks_again_with_the_same_key_and_body_until_it_is_answered(api: Api) -> None:
    api.script = [
        CUT,
        refusal(503, "unavailable"),
        refusal(500, "internal"),
        refusal(409, "still_running"),
        ACCEPTED,
    ]

    traffic = send(api, request(within=5.0))

    assert len(api.asked) == 5
    assert {key for key, _body in api.asked} == {"chaos-1"}
    assert all(body == api.asked[0][1] for _key, body in api.asked)
    assert "deliver_until" in api.asked[0][1]
    assert traffic.promises[1].ids == {"m1"}
    assert traffic.promises[1].deliver_until == 1795953600.5


def test_remembers_what_was_refused_and_does_not_insist(api: Api) -> None:
    api.script = [refusal(409, "would_be_late")]

    traffic = send(api, request())

    assert len(api.asked) == 1
    assert (traffic.refused, dict(traffic.promises)) == ({1: "would_be_late"}, {})


def test_remembers_every_id_that_one_key_was_answered_with(api: Api) -> None:
    api.script = [ACCEPTED, (202, {"id": "another", "deliver_until": UNTIL})]

    traffic = send(api, request(), request())

    assert traffic.promises[1].ids == {"m1", "another"}
    assert traffic.replayed == 1


def test_gives_up_only_when_told_to_and_says_so(api: Api) -> None:
    api.script = [refusal(503, "unavailable")] * 1000
    traffic = Traffic([request()], port=api.port, keys=["secret"], names=["i0"])

    traffic.start()
    while not api.asked:
        threading.Event().wait(0.01)
    traffic.give_up()

    assert traffic.unanswered == {1}
    assert not traffic.promises


@pytest.mark.parametrize("shape", ["text", "buttons", "template"])
def test_every_message_carries_the_words_that_tell_it_apart(api: Api, shape: str) -> None:
    send(api, request(7, shape=shape))

    ((_key, body),) = api.asked
    assert marked(7) in json.dumps(body, ensure_ascii=False)
    assert body["metadata"] == {"number": "7"}
    assert ("template" in body) is (shape == "template")
    assert ("buttons" in body) is (shape == "buttons")
