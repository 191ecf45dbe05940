"""What a sandbox with a state directory still knows after kill -9, and how it stops when asked nicely."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sandbox.emulator import ALL_RECEIPTS, Emulator, Receiver, eventually


@pytest.fixture
def durable(launch: Callable[..., Emulator], tmp_path: Path) -> Emulator:
    return launch("--state", str(tmp_path), "--wait-scale", "0.02", "--receipts-after", "0.02,0.04,0.06")


def crash(emulator: Emulator) -> None:
    emulator.kill(signal.SIGKILL)
    emulator.start()


def test_keeps_instances_webhooks_messages_receipts_and_ledger(durable: Emulator, receiver: Receiver) -> None:
    durable.create("open", webhook=receiver.url, token="tok-1")
    durable.create("closed", pair=False)
    durable.know("5511900000000", exists=False)
    key_id = durable.send("open", text="kept").json()["key"]["id"]
    eventually(lambda: receiver.statuses() == ALL_RECEIPTS)
    before = observe(durable, key_id)

    crash(durable)

    assert observe(durable, key_id) == before
    assert (durable.state("open"), durable.state("closed")) == ("open", "close")
    assert durable.ledger()[0]["status"] == "READ"
    assert durable.send("open", number="5511900000000").status_code == 400


def observe(sandbox: Emulator, key_id: str) -> list[object]:
    rows = sandbox.api.get("/instance/fetchInstances").json()
    return [
        [{**row, "updatedAt": None} for row in rows],
        sandbox.api.get("/webhook/find/open").json(),
        sandbox.api.post("/chat/findMessages/open", json={}).json(),
        sandbox.api.post("/chat/findStatusMessage/open", json={"where": {"id": key_id}}).json(),
        sandbox.ledger(),
    ]


def test_goes_on_with_the_ledger_of_an_older_version(launch: Callable[..., Emulator], tmp_path: Path) -> None:
    older = sqlite3.connect(tmp_path / "sandbox.sqlite3")
    older.execute(
        "CREATE TABLE ledger (seq INTEGER PRIMARY KEY AUTOINCREMENT, instance TEXT, number TEXT,"
        " remote_jid TEXT, key_id TEXT, kind TEXT, text TEXT, body TEXT, content_hash TEXT,"
        " accepted_at REAL, status TEXT)"
    )
    older.close()
    sandbox = launch("--state", str(tmp_path))

    sandbox.create("a1")

    assert sandbox.send("a1").status_code == 201


def test_goes_on_counting_the_ledger(durable: Emulator) -> None:
    durable.create("a1")
    durable.send("a1")

    crash(durable)
    durable.send("a1")

    assert [entry["seq"] for entry in durable.ledger()] == [1, 2]


def test_has_written_every_message_it_answered_for(durable: Emulator) -> None:
    durable.create("a1")
    answered = [durable.send("a1", text=str(n)).json()["key"]["id"] for n in range(50)]

    crash(durable)

    assert [entry["key_id"] for entry in durable.ledger()] == answered


def test_sends_the_receipts_still_due(
    launch: Callable[..., Emulator], tmp_path: Path, receiver: Receiver
) -> None:
    sandbox = launch("--state", str(tmp_path), "--receipts-after", "0.01,0.6,0.7")
    sandbox.create("a1", webhook=receiver.url)
    sandbox.send("a1")
    eventually(lambda: receiver.statuses() == {"SERVER_ACK": 1})

    crash(sandbox)

    eventually(lambda: receiver.statuses() == ALL_RECEIPTS)


def test_tells_that_open_instances_are_back(durable: Emulator, receiver: Receiver) -> None:
    durable.create("a1", webhook=receiver.url)
    eventually(lambda: receiver.of("connection.update"))

    crash(durable)

    eventually(lambda: len(receiver.of("connection.update")) == 3)


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_stops_with_zero_though_a_client_hangs(durable: Emulator, sig: signal.Signals) -> None:
    durable.create("a1")
    durable.arm("hang")
    with pytest.raises(Exception, match="timed out"):
        durable.api.post("/message/sendText/a1", json={"number": "5511", "text": "x"}, timeout=0.1)

    assert durable.kill(sig) == 0


def test_says_where_it_listens(durable: Emulator) -> None:
    assert durable.ready_line == f"sandbox ready on {durable.url}"
    assert durable.api.get("/").json()["version"] == "2.3.7"
