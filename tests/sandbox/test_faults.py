"""Each fault does what it says, and the ledger tells whether the message went out."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandbox.evolution.errors import SHAPES
from sandbox.faults import KINDS, Fault
from tests.sandbox.emulator import ALL_RECEIPTS, Emulator, Receiver, eventually

PATIENCE = 0.3
ACCEPTED_FAILURES = {"prisma_400", "empty_201"}
UNSAVED_FAILURES = {"prisma_400"}

STATUS_AND_TEXT: dict[str, tuple[int, str]] = {
    "connection_closed_400": (400, '["Error: Connection Closed"]'),
    "connection_closed_500": (500, '"message":"Connection Closed"'),
    "type_error_400": (400, "TypeError: Cannot read properties of undefined (reading 'id')"),
    "on_whatsapp_500": (500, "Cannot read properties of undefined (reading 'onWhatsApp')"),
    "timed_out_400": (400, '["Error: Timed Out"]'),
    "prisma_400": (400, "Prisma"),
    "not_on_whatsapp": (400, '"exists":false,"number":"5511987654321"'),
    "object_object_400": (400, '["[object Object]"]'),
    "unauthorized_401": (401, '"message":"Unauthorized"'),
    "forbidden_403": (403, '"error":"Forbidden"'),
    "instance_404": (404, 'The \\"a1\\" instance does not exist'),
    "license_503": (503, '"code":"LICENSE_REQUIRED"'),
    "bad_gateway_502": (502, "<h1>502 Bad Gateway</h1>"),
    "gateway_timeout_504": (504, "<h1>504 Gateway Time-out</h1>"),
    "internal_500": (500, '"message":"Internal Server Error"'),
    "too_many_429": (429, "rate-overlimit"),
    "empty_201": (201, ""),
}


@pytest.fixture(autouse=True)
def instance(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.create("a1", webhook=receiver.url)


def found(sandbox: Emulator) -> int:
    total: int = sandbox.api.post("/chat/findMessages/a1", json={}).json()["messages"]["total"]
    return total


def outcomes(sandbox: Emulator) -> list[str]:
    return [r["outcome"] for r in sandbox.requests() if r["op"] == "message/sendText"]


def test_delays_the_answer(sandbox: Emulator) -> None:
    sandbox.arm("latency", seconds=0.15)

    started = time.monotonic()
    sandbox.send("a1")

    assert time.monotonic() - started >= 0.15


def test_cuts_the_connection_after_accepting(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.arm("answer_lost", times=1)

    with pytest.raises(httpx.ReadError):
        sandbox.send("a1", text="lost answer")

    assert [entry["text"] for entry in sandbox.ledger()] == ["lost answer"]
    assert found(sandbox) == 1
    eventually(lambda: receiver.of("send.message"))
    assert outcomes(sandbox) == ["cut"]


def test_cuts_the_connection_before_anything_happens(sandbox: Emulator) -> None:
    sandbox.arm("reset_before", times=1)

    with pytest.raises(httpx.ReadError):
        sandbox.send("a1")

    assert sandbox.ledger() == []
    assert sandbox.send("a1").status_code == 201


@pytest.mark.parametrize(("accepted", "delivered"), [(True, 1), (False, 0)])
def test_never_answers(sandbox: Emulator, accepted: bool, delivered: int) -> None:
    sandbox.arm("hang", accepted=accepted, times=1)

    with pytest.raises(httpx.ReadTimeout):
        sandbox.api.post(
            "/message/sendText/a1", json={"number": "5511987654321", "text": "x"}, timeout=PATIENCE
        )

    assert len(sandbox.ledger()) == delivered
    assert outcomes(sandbox) == ["hang"]


def test_knows_every_shape_by_name() -> None:
    assert set(STATUS_AND_TEXT) == set(SHAPES)


@pytest.mark.parametrize("shape", SHAPES)
def test_answers_with_the_named_failure(sandbox: Emulator, shape: str) -> None:
    sandbox.arm("error", shape=shape, times=1)

    answer = sandbox.send("a1")

    status, text = STATUS_AND_TEXT[shape]
    assert answer.status_code == status
    assert text in answer.text
    assert len(sandbox.ledger()) == (shape in ACCEPTED_FAILURES)
    assert found(sandbox) == (shape in ACCEPTED_FAILURES - UNSAVED_FAILURES)


def test_answers_empty_with_an_empty_body(sandbox: Emulator) -> None:
    sandbox.arm("error", shape="empty_201")

    assert sandbox.send("a1").content == b""


def test_tells_when_to_come_back(sandbox: Emulator) -> None:
    sandbox.arm("error", shape="too_many_429", retry_after=7)

    assert sandbox.send("a1").headers["Retry-After"] == "7"


def test_may_time_out_after_the_message_went(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.arm("error", shape="timed_out_400", accepted=True)

    assert sandbox.send("a1").status_code == 400

    assert len(sandbox.ledger()) == 1
    assert found(sandbox) == 0
    assert not receiver.of("send.message")


def test_may_fail_in_a_gateway_after_the_message_went(sandbox: Emulator) -> None:
    sandbox.arm("error", shape="gateway_timeout_504", accepted=True)

    assert sandbox.send("a1").status_code == 504

    assert len(sandbox.ledger()) == found(sandbox) == 1


def test_keeps_a_message_pending(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.arm("stay_pending", times=1)

    pending = sandbox.send("a1").json()["key"]["id"]
    sandbox.send("a1")

    eventually(lambda: receiver.statuses() == ALL_RECEIPTS)
    assert all(r.body["data"]["keyId"] != pending for r in receiver.of("messages.update"))
    assert [entry["status"] for entry in sandbox.ledger()] == ["PENDING", "READ"]


def test_fails_a_message_after_its_201(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.arm("error_receipt", times=1)

    assert sandbox.send("a1").status_code == 201

    eventually(lambda: receiver.statuses() == {"ERROR": 1})
    assert sandbox.ledger()[0]["status"] == "ERROR"


def test_skips_the_server_ack(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.arm("skip_server_ack")

    sandbox.send("a1")

    eventually(lambda: receiver.statuses() == {"DELIVERY_ACK": 1, "READ": 1})


def test_loses_webhooks(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.arm("webhooks_lost", event="messages.update", times=2)

    sandbox.send("a1")

    eventually(lambda: receiver.statuses() == {"READ": 1})
    eventually(lambda: receiver.of("send.message"))


def test_doubles_webhooks(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.arm("webhooks_doubled", event="send.message")

    sandbox.send("a1")

    first, second = eventually(lambda: len(receiver.of("send.message")) == 2 and receiver.of("send.message"))
    assert first.body == second.body


def test_delivers_webhooks_late(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.arm("webhooks_late", event="send.message", seconds=0.2)

    answered = time.monotonic()
    sandbox.send("a1")

    (late,) = eventually(lambda: receiver.of("send.message"))
    assert late.at - answered >= 0.2


def test_delivers_webhooks_in_reverse(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.arm("webhooks_reordered", event="messages.update", window=0.2)

    sandbox.send("a1")

    eventually(lambda: receiver.statuses() == ALL_RECEIPTS)
    order = [r.body["data"]["status"] for r in receiver.of("messages.update")]
    assert order == ["READ", "DELIVERY_ACK", "SERVER_ACK"]


def test_lets_a_receipt_overtake_the_answer(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.arm("webhooks_before_answer", times=1)

    sandbox.send("a1")
    answered = time.monotonic()

    assert receiver.of("messages.update")[0].at < answered
    eventually(lambda: receiver.statuses() == ALL_RECEIPTS)


def test_breaks_the_socket_of_an_open_instance(sandbox: Emulator) -> None:
    sandbox.send("a1", number="5511911111111")
    sandbox.arm("dead_socket")

    cached = sandbox.send("a1", number="5511911111111")
    unknown = sandbox.send("a1", number="5511922222222")

    presence = sandbox.api.post("/instance/setPresence/a1", json={"presence": "available"})

    assert sandbox.state("a1") == "open"
    assert presence.status_code == 400
    assert (cached.status_code, cached.json()["response"]["message"]) == (400, ["Error: Connection Closed"])
    assert (unknown.status_code, unknown.json()["response"]["message"]) == (500, "Connection Closed")
    assert len(sandbox.ledger()) == 1


def test_fails_typing_but_not_sending(sandbox: Emulator) -> None:
    sandbox.arm("typing_fails")
    typing = {"number": "5511987654321", "presence": "composing", "delay": 1}

    assert sandbox.api.post("/chat/sendPresence/a1", json=typing).status_code == 400
    assert sandbox.send("a1").status_code == 201


def test_wipes_the_webhook_configuration(sandbox: Emulator) -> None:
    sandbox.arm("webhook_config_wiped", instance="a1")

    webhook = sandbox.api.get("/webhook/find/a1").json()

    assert (webhook["enabled"], webhook["url"], webhook["events"]) == (False, "", [])
    assert webhook["headers"] is None


def test_storms_with_connecting_events_and_recovers(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.arm("connecting_storm", rate=100, seconds=0.3)

    eventually(lambda: connecting(receiver) >= 10)
    eventually(lambda: sandbox.state("a1") == "open")
    assert connecting(receiver) <= 31


def connecting(receiver: Receiver) -> int:
    return sum(r.body["data"]["state"] == "connecting" for r in receiver.of("connection.update"))


@pytest.mark.parametrize(
    ("aim", "other"),
    [
        ({"instance": "a1"}, {"name": "a2"}),
        ({"number": "5547988887777"}, {"name": "a1"}),
        ({"op": "message/sendMedia"}, {"name": "a1"}),
    ],
)
def test_hits_only_what_it_is_aimed_at(sandbox: Emulator, aim: dict[str, str], other: dict[str, str]) -> None:
    sandbox.create("a2")
    sandbox.arm("error", **aim)

    assert sandbox.send(other["name"]).status_code == 201


def test_finds_the_number_in_either_form(sandbox: Emulator) -> None:
    sandbox.arm("error", number="554788887777")

    assert sandbox.send("a1", number="+55 (47) 98888-7777").status_code == 500


def test_stops_after_its_times(sandbox: Emulator) -> None:
    sandbox.arm("error", times=2)

    assert [sandbox.send("a1").status_code for _ in range(3)] == [500, 500, 201]


def test_stops_after_its_seconds(sandbox: Emulator) -> None:
    sandbox.arm("error", for_seconds=0.2)

    assert sandbox.send("a1").status_code == 500
    eventually(lambda: sandbox.send("a1").status_code == 201)


def test_throws_the_same_dice_for_the_same_seed() -> None:
    first, second = (throws(seed=7) for _ in range(2))

    assert first == second
    assert 0 < sum(first) < len(first)
    assert throws(seed=8) != first


def throws(*, seed: int) -> list[bool]:
    fault = Fault(id=1, kind="error", op="*", params={}, probability=0.5, seed=seed)
    return [fault.strike() for _ in range(64)]


def test_lists_and_clears_faults(sandbox: Emulator) -> None:
    first, second = sandbox.arm("stay_pending"), sandbox.arm("error", times=1)
    sandbox.send("a1")

    listed = sandbox.control.get("/faults").json()
    sandbox.control.delete(f"/faults/{first}")

    assert [(f["id"], f["hits"], f["active"]) for f in listed] == [(first, 0, True), (second, 1, False)]
    assert [f["id"] for f in sandbox.control.get("/faults").json()] == [second]


@pytest.mark.parametrize(
    "spec", [{"kind": "nope"}, {"kind": "error", "colour": "red"}, {"kind": "error", "shape": "x"}]
)
def test_refuses_a_fault_it_does_not_know(sandbox: Emulator, spec: dict[str, Any]) -> None:
    assert sandbox.control.post("/faults", json=spec).status_code == 400


def test_has_no_fault_without_a_test() -> None:
    here = Path(__file__).parent
    tests = "".join((here / name).read_text() for name in ("test_faults.py", "test_graph.py"))

    used = set(re.findall(r'arm\("(\w+)"|"kind": "(\w+)"', tests))
    assert set(KINDS) - {kind for pair in used for kind in pair} == set()


def test_takes_messages_and_delivers_none_until_it_is_restarted(sandbox: Emulator) -> None:
    sandbox.arm("zombie", instance="a1")

    assert sandbox.send("a1").status_code == 201
    assert (sandbox.state("a1"), sandbox.ledger()) == ("open", [])

    sandbox.api.post("/instance/restart/a1")
    eventually(lambda: sandbox.state("a1") == "open")
    sandbox.send("a1")
    assert len(sandbox.ledger()) == 1
