"""The control API, and the endpoints of channels other than Baileys."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.sandbox.emulator import ALL_RECEIPTS, Emulator, Receiver, eventually


@pytest.mark.parametrize("headers", [{}, {"X-Sandbox-Key": "wrong"}, {"apikey": "sandbox-test-key"}])
def test_asks_for_its_own_key(sandbox: Emulator, headers: dict[str, str]) -> None:
    answer = httpx.get(f"{sandbox.url}/_sandbox/ledger", headers=headers)

    assert answer.status_code == 401


def test_pages_the_ledger(sandbox: Emulator) -> None:
    sandbox.create("a1")
    for text in "abc":
        sandbox.send("a1", text=text)
    first = sandbox.control.get("/ledger", params={"limit": 2}).json()

    rest = sandbox.control.get("/ledger", params={"after": first["next"]}).json()

    assert [e["text"] for e in first["entries"]] == ["a", "b"]
    assert [e["text"] for e in rest["entries"]] == ["c"]


def test_lists_what_receivers_took_over_and_not_what_they_refused(
    sandbox: Emulator, receiver: Receiver
) -> None:
    sandbox.create("taken", webhook=receiver.url)
    sandbox.create("refused", webhook=f"{receiver.url}/fail503")

    key_id = sandbox.send("taken").json()["key"]["id"]
    sandbox.send("refused")
    eventually(lambda: len(receiver.of("messages.update", instance="refused")) >= 3)

    eventually(lambda: len(told(sandbox)) == 4)
    assert {entry["key_id"] for entry in told(sandbox)} == {key_id}
    assert {entry["status"] for entry in told(sandbox)} == {"PENDING", *ALL_RECEIPTS}
    assert told(sandbox, after=3) == told(sandbox)[3:]


def told(sandbox: Emulator, **query: int) -> list[dict[str, Any]]:
    return sandbox.control.get("/told", params=query).json()["entries"]


def test_tells_when_it_was_asked_apart_from_when_it_was_sent(sandbox: Emulator) -> None:
    sandbox.create("a1")
    sandbox.arm("latency", seconds=0.2, times=1)

    sandbox.send("a1")

    (entry,) = sandbox.ledger()
    assert entry["accepted_at"] - entry["asked_at"] >= 0.2


def test_counts_the_ledger_of_one_instance(sandbox: Emulator) -> None:
    sandbox.create("a1")
    sandbox.create("a2")
    sandbox.send("a1")
    sandbox.send("a2")

    counts = [
        sandbox.control.get("/ledger/count", params=p).json()["count"] for p in ({}, {"instance": "a2"})
    ]

    assert counts == [2, 1]


def test_hashes_the_content_and_not_the_way_it_is_sent(sandbox: Emulator) -> None:
    sandbox.create("a1")
    sandbox.send("a1", text="same")
    sandbox.send("a1", text="same", number="5511900000000", delay=1, linkPreview=False)
    sandbox.send("a1", text="other")

    same, again, other = [entry["content_hash"] for entry in sandbox.ledger()]

    assert same == again != other


def test_keeps_the_ledger_of_a_deleted_instance(sandbox: Emulator) -> None:
    sandbox.create("a1")
    sandbox.send("a1")

    sandbox.api.delete("/instance/delete/a1")
    eventually(lambda: sandbox.state("a1") is None)

    assert len(sandbox.ledger()) == 1


def test_logs_the_requests_it_was_asked(sandbox: Emulator) -> None:
    sandbox.create("a1")
    sandbox.send("a1")
    sandbox.send("nobody")

    sends = sandbox.control.get("/requests", params={"op": "message/sendText"}).json()["entries"]

    assert [(e["instance"], e["outcome"]) for e in sends] == [("a1", "201"), ("nobody", "404")]


def test_forgets_everything_on_reset(sandbox: Emulator) -> None:
    sandbox.create("a1")
    sandbox.send("a1")
    sandbox.arm("error")

    sandbox.control.post("/reset")

    assert sandbox.state("a1") is None
    assert sandbox.ledger() == []
    assert sandbox.control.get("/faults").json() == []


def test_announces_an_inbound_message_and_stores_it(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.create("a1", webhook=receiver.url)

    sandbox.do("a1", "inbound", **{"from": "5511987654321"}, text="SIM", push_name="Maria")

    (upsert,) = eventually(lambda: receiver.of("messages.upsert"))
    assert upsert.body["data"]["message"] == {"conversation": "SIM"}
    assert upsert.body["data"]["pushName"] == "Maria"
    assert sandbox.api.post("/chat/findMessages/a1", json={}).json()["messages"]["total"] == 1


def test_tells_of_an_unknown_instance_or_path(sandbox: Emulator) -> None:
    assert sandbox.control.post("/instances/nobody/pair").status_code == 404
    assert sandbox.control.get("/nothing").json() == {"error": "Not Found"}


def test_sends_at_once_through_the_passive_channel(sandbox: Emulator) -> None:
    sandbox.create("e1", pair=False, integration="EVOLUTION")

    answer = sandbox.send("e1").json()

    assert answer["key"]["remoteJid"] == "5511987654321"
    assert "status" not in answer


def test_sends_templates_only_through_the_cloud_channel(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.create(
        "b1", webhook=receiver.url, pair=False, integration="WHATSAPP-BUSINESS", token="t", number="1112"
    )
    template = {"number": "5511987654321", "name": "welcome", "language": "pt_BR", "components": []}

    answer = sandbox.api.post("/message/sendTemplate/b1", json=template)

    assert answer.json()["key"]["id"].startswith("wamid.")
    eventually(lambda: receiver.statuses() == {"SENT": 1, "DELIVERED": 1, "READ": 1})


def test_filters_messages_by_time_and_sender(sandbox: Emulator) -> None:
    sandbox.create("a1")
    sandbox.send("a1")
    sandbox.do("a1", "inbound", **{"from": "5511987654321"}, text="SIM")

    totals = {
        "mine": {"key": {"fromMe": True}},
        "false does not filter": {"key": {"fromMe": False}},
        "now": {"messageTimestamp": {"gte": "2020-01-01T00:00:00Z", "lte": "2100-01-01T00:00:00Z"}},
        "then": {"messageTimestamp": {"gte": "2020-01-01T00:00:00Z", "lte": "2020-01-02T00:00:00Z"}},
    }
    found = {
        name: sandbox.api.post("/chat/findMessages/a1", json={"where": where}).json()["messages"]["total"]
        for name, where in totals.items()
    }

    assert found == {"mine": 1, "false does not filter": 2, "now": 2, "then": 0}


@pytest.mark.parametrize(
    ("buttons", "text"),
    [
        (["pix", "url"], "PIX button cannot be mixed with other button types"),
        (["reply", "pix"], "PIX button cannot be mixed with other button types"),
        (["pix", "pix"], "Only one PIX button is allowed"),
        (["reply", "call"], "Reply buttons cannot be mixed with other button types"),
    ],
)
def test_refuses_buttons_that_do_not_go_together(sandbox: Emulator, buttons: list[str], text: str) -> None:
    sandbox.create("a1")
    body = {"number": "5511987654321", "title": "T", "buttons": [{"type": kind} for kind in buttons]}

    answer = sandbox.api.post("/message/sendButtons/a1", json=body)

    assert answer.json()["response"]["message"] == [text]
