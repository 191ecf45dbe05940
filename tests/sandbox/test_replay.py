"""The emulator answers and calls back as the recorded server did, line by line."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.sandbox.emulator import KEY, PATIENCE, Emulator, Receiver, eventually

GOLDEN = Path(__file__).parents[1] / "golden" / "evolution"
REQUESTS = [json.loads(line) for line in (GOLDEN / "http-2.3.7.jsonl").read_text().splitlines()]
WEBHOOKS = [json.loads(line) for line in (GOLDEN / "webhooks-2.3.7.jsonl").read_text().splitlines()]

PERSON = "5511987654321"
GROUP = "120363000000000000@g.us"

CANNOT_MATCH = {
    83: "stub artefact: with a socket that can upload, this sendMedia succeeds",
}

# Compared by shape alone.
SHAPE_ONLY = {
    99: "messages of the same second come in any order",
    152: "the recorded message had been edited on the phone, which the emulator cannot do",
}

# What was done at the recorded server's WhatsApp side before a line; the recording shows it only by its effect.
BEFORE: dict[int, Callable[[Emulator], Any]] = {
    77: lambda s: (
        s.do("a1", "pair", owner="5511900000001", profile_name="Loja Teste"),
        s.know("5511911112222", exists=False),
        s.know("551140041234", exists=False),
        s.know(GROUP, exists=False),
    ),
    80: lambda s: s.arm("stay_pending"),
    89: lambda s: s.do("a1", "state", state="close"),
    92: lambda s: (
        s.do("a1", "state", state="open"),
        s.arm("error", shape="timed_out_400", times=1),
    ),
    97: lambda s: s.do("a1", "inbound", **{"from": PERSON}, text="SIM", push_name="Maria", lid="swapped"),
    102: lambda s: s.do("a1", "inbound", **{"from": PERSON}, text="sent from phone", from_me=True),
    104: lambda s: s.do("a1", "state", state="open"),
    106: lambda s: s.arm("webhooks_late", instance="a1", event="remove.instance", seconds=0.5),
    111: lambda s: (
        s.do("b1", "pair", owner="5511900000002"),
        s.api.post("/message/sendMedia/b1", json=media("image", "image/png", caption="leg")),
        s.api.post("/message/sendMedia/b1", json=media("document", "application/pdf", caption="leg")),
    ),
    112: lambda s: s.know(GROUP, exists=True, participants=[f"{PERSON}@s.whatsapp.net"]),
    121: lambda s: (s.do("c1", "pair"), s.do("c4", "pair")),
    132: lambda s: s.do("b1", "disconnect", reason=401),
    134: lambda s: s.do("b1", "state", state="close", socket="open"),
    135: lambda s: s.arm("connecting_storm", instance="b2", seconds=60),
    142: lambda s: (s.disarm(), s.do("b2", "state", state="close", socket="connecting")),
    145: lambda s: s.do("b2", "state", state="connecting"),
    147: lambda s: s.arm("connecting_storm", instance="b3", seconds=60),
    151: lambda s: (s.disarm(), s.do("d1", "pair", owner="5511900000009", profile_name="Loja Teste")),
    152: lambda s: (
        s.do("d1", "webhook", event="messages.edited", data=WEBHOOKS[48]["body"]["data"]),
        s.do("d1", "inbound", **{"from": PERSON}, push_name="Maria", **template_reply()),
    ),
    153: lambda s: s.do("d1", "disconnect", reason=401),
    155: lambda s: eventually(lambda: s.state("d1") is None),
}


def media(kind: str, mimetype: str, **more: str) -> dict[str, str]:
    return {
        "number": PERSON,
        "mediatype": kind,
        "media": "aGVsbG8=",
        "mimetype": mimetype,
        "fileName": "a",
        **more,
    }


def template_reply() -> dict[str, Any]:
    reply = {"selectedId": "yes", "selectedDisplayText": "Sim"}
    return {
        "message_type": "templateButtonReplyMessage",
        "message": {"templateButtonReplyMessage": reply, "messageContextInfo": {}},
    }


class Replay:
    """Sends every recorded line in order and keeps the answers; ids met in answers are used in later lines."""

    def __init__(self, sandbox: Emulator, receiver: Receiver) -> None:
        self._sandbox = sandbox
        with socket.create_server(("127.0.0.1", 0)) as unused:
            closed = f"127.0.0.1:{unused.getsockname()[1]}"
        self._names = {
            "http://pilot.test": receiver.url,
            "http://evolution.test": sandbox.url,
            "192.0.2.1:9": closed,
        }
        self._client = httpx.Client(base_url=sandbox.url, timeout=PATIENCE)
        self.answers: dict[int, httpx.Response] = {}

    def run(self) -> None:
        for number, line in enumerate(REQUESTS, 1):
            BEFORE.get(number, lambda _sandbox: None)(self._sandbox)
            if number not in CANNOT_MATCH:
                self.answers[number] = self._ask(number, line)
                self._learn(line["response"], self.answers[number])
        self._client.close()

    def _ask(self, number: int, line: dict[str, Any]) -> httpx.Response:
        """Reads may be asked again until they match: what they see happens in the background."""
        answer = self._send(line)
        deadline = time.monotonic() + PATIENCE
        while is_read(line) and not self.matches(number, answer) and time.monotonic() < deadline:
            answer = self._send(line)
        return answer

    def _send(self, line: dict[str, Any]) -> httpx.Response:
        headers = {"Content-Type": "application/json"}
        if line["apikey"] is not None:
            headers["apikey"] = KEY if line["apikey"] == "<global>" else line["apikey"]
        body = line["body"]
        content = None if body is None else body if isinstance(body, str) else json.dumps(body)
        return self._client.request(
            line["method"], self.here(line["path"]), headers=headers, content=content and self.here(content)
        )

    def _learn(self, recorded: Any, answer: httpx.Response) -> None:
        if answer.status_code == 201 and "key" in recorded:
            self._names[recorded["key"]["id"]] = answer.json()["key"]["id"]

    def here(self, text: str) -> str:
        """Recorded names replaced by those of this run."""
        for recorded, actual in self._names.items():
            text = text.replace(recorded, actual)
        return text

    def expected(self, number: int) -> Any:
        return json.loads(self.here(json.dumps(REQUESTS[number - 1]["response"])))

    def matches(self, number: int, answer: httpx.Response) -> bool:
        compare = comparison(number)
        same_status = answer.status_code == REQUESTS[number - 1]["status"]
        return same_status and compare(answer.json()) == compare(self.expected(number))


def comparison(number: int) -> Callable[[Any], Any]:
    return shape if number in SHAPE_ONLY else comparable


def is_read(line: dict[str, Any]) -> bool:
    path = urlsplit(line["path"]).path
    return path.startswith(("/instance/connectionState/", "/chat/find"))


# Values that differ from run to run; of these only the type is compared.
VOLATILE = frozenset(
    {"id", "instanceId", "messageId", "hash", "createdAt", "updatedAt", "disconnectionAt", "date_time"}
    | {"messageTimestamp", "low", "messageParamsJson", "ownerJid", "wuid", "sender", "profileName", "_count"}
    | {"destination", "server_url", "code", "base64", "pairingCode", "url", "directPath", "status", "keyId"}
)


def comparable(value: Any, key: str = "") -> Any:
    """What two answers must share: everything, save that of volatile values only the type counts, and of
    lists of receipts only what kinds of item they hold."""
    if isinstance(value, dict):
        if key != "" and value and all(name.isdigit() for name in value):
            return "octets"
        return {name: comparable(item, name) for name, item in value.items()}
    if isinstance(value, list):
        items = [comparable(item) for item in value]
        return unique(items) if is_receipts(value, key) else items
    if key in VOLATILE and not is_status_of_error(value):
        return "text" if isinstance(value, str) or value is None else type(value).__name__
    return value


def is_receipts(items: list[Any], key: str) -> bool:
    return key == "MessageUpdate" or any(isinstance(item, dict) and "keyId" in item for item in items)


def is_status_of_error(value: Any) -> bool:
    return isinstance(value, int) and 400 <= value < 600


def unique(items: list[Any]) -> list[Any]:
    return [item for index, item in enumerate(items) if item not in items[:index]]


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def replay(receiver: Receiver) -> Iterator[Replay]:
    sandbox = Emulator(
        "--wait-scale",
        "0.3",
        "--retry-scale",
        "0.0005",
        "--receipts-after",
        "0.01,0.02,0.03",
        "--expose-token",
    )
    replay = Replay(sandbox, receiver)
    replay.run()
    yield replay
    sandbox.kill(signal.SIGTERM)


@pytest.mark.parametrize("number", [n for n in range(1, len(REQUESTS) + 1) if n not in CANNOT_MATCH])
def test_answers_as_recorded(replay: Replay, number: int) -> None:
    line, answer = REQUESTS[number - 1], replay.answers[number]
    compare = comparison(number)

    assert answer.status_code == line["status"]
    assert compare(answer.json()) == compare(replay.expected(number))


@pytest.fixture(scope="module")
def emitted(replay: Replay, receiver: Receiver) -> list[dict[str, Any]]:
    """What the replay delivered, and what an instance delivers whose QR codes nobody scans."""
    hasty = Emulator("--wait-scale", "0.002", "--qr-limit", "2", "--expose-token")
    hasty.create("d1", webhook=f"{receiver.url}/h/d1")
    hasty.do("d1", "disconnect", reason=401)
    hasty.api.get("/instance/connect/d1")
    eventually(lambda: refused(receiver))
    hasty.kill(signal.SIGTERM)
    return [received.body for received in receiver.received]


def refused(receiver: Receiver) -> bool:
    return any(r.body["data"]["state"] == "refused" for r in receiver.of("connection.update"))


@pytest.mark.parametrize("number", range(1, len(WEBHOOKS) + 1))
def test_calls_back_as_recorded(emitted: list[dict[str, Any]], number: int) -> None:
    recorded = WEBHOOKS[number - 1]["body"]

    assert shape(recorded) in [shape(body) for body in emitted if body["event"] == recorded["event"]]


def shape(value: Any, key: str = "") -> Any:
    """Keys, types and nesting. A nullable field counts as text whatever it holds."""
    if isinstance(value, dict):
        if value and all(name.isdigit() for name in value):
            return "octets"
        return {name: shape(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return "receipts" if key == "MessageUpdate" else unique([shape(item) for item in value])
    if value is None and key == "data":
        return None
    return "text" if isinstance(value, str) or value is None else type(value).__name__


def test_gives_a_recorded_key_id_its_form(replay: Replay) -> None:
    key_id = replay.answers[79].json()["key"]["id"]

    assert re.fullmatch(r"3EB0[0-9A-F]{18}", key_id)
