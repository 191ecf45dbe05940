"""The life of an instance: QR, pairing, restart, closes, logout, deletion."""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Callable

from tests.sandbox.emulator import Emulator, Receiver, eventually


def states(receiver: Receiver) -> Counter[str]:
    """How often each state was announced: deliveries run side by side and keep no order."""
    return Counter(r.body["data"]["state"] for r in receiver.of("connection.update"))


def test_offers_a_qr_that_is_a_png_and_changes(sandbox: Emulator) -> None:
    sandbox.create("a1", pair=False)

    first = sandbox.api.get("/instance/connect/a1").json()
    later = eventually(lambda: newer_qr(sandbox, first["count"]))

    assert first["code"].startswith("2@")
    assert first["pairingCode"] is None
    header, _, image = first["base64"].partition(",")
    assert header == "data:image/png;base64"
    assert base64.b64decode(image).startswith(b"\x89PNG")
    assert later["code"] != first["code"]


def newer_qr(sandbox: Emulator, count: int) -> dict[str, object] | None:
    qr = sandbox.api.get("/instance/connect/a1").json()
    return qr if qr["count"] > count else None


def test_gives_a_pairing_code_when_a_number_is_given(sandbox: Emulator) -> None:
    sandbox.create("a1", pair=False)

    qr = sandbox.api.get("/instance/connect/a1", params={"number": "5511999999999"}).json()

    assert len(qr["pairingCode"]) == 8


def test_answers_create_with_the_first_qr(sandbox: Emulator) -> None:
    created = sandbox.create("a1", pair=False, qrcode=True)

    assert created["qrcode"]["count"] >= 1
    assert created["instance"]["status"] == "connecting"


def test_holds_connect_for_two_seconds_of_its_own_time(launch: Callable[..., Emulator]) -> None:
    sandbox = launch("--wait-scale", "0.1")
    sandbox.create("a1", pair=False)

    started = time.monotonic()
    sandbox.api.get("/instance/connect/a1")
    took = time.monotonic() - started

    assert 0.2 <= took < 2


def test_pairs_by_itself_when_asked_to(launch: Callable[..., Emulator], receiver: Receiver) -> None:
    sandbox = launch("--pair-after", "0.1", "--wait-scale", "0.1")
    sandbox.create("a1", pair=False, webhook=receiver.url, number="5511900000001")

    sandbox.api.get("/instance/connect/a1")

    eventually(lambda: sandbox.state("a1") == "open")
    eventually(lambda: states(receiver) == {"connecting": 1, "open": 1})
    wuids = [r.body["data"].get("wuid") for r in receiver.of("connection.update")]
    assert "5511900000001@s.whatsapp.net" in wuids


def test_restarts_an_open_instance_silently(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.create("a1", webhook=receiver.url)

    answer = sandbox.api.post("/instance/restart/a1").json()

    assert answer["instance"]["state"] == "open"
    eventually(lambda: states(receiver) == {"connecting": 1, "open": 2})


def test_answers_restart_of_a_closed_instance_with_an_error_in_a_200(sandbox: Emulator) -> None:
    sandbox.create("a1", pair=False)

    answer = sandbox.api.post("/instance/restart/a1")

    assert answer.status_code == 200
    assert answer.json() == {"error": True, "message": "[object Object]"}


def test_announces_a_terminal_close_and_forgets_the_credentials(
    sandbox: Emulator, receiver: Receiver
) -> None:
    sandbox.create("a1", webhook=receiver.url)

    sandbox.do("a1", "disconnect", reason=401)

    eventually(lambda: receiver.of("logout.instance") and receiver.of("status.instance"))
    eventually(lambda: states(receiver) == {"open": 1, "close": 1})
    row = sandbox.api.get("/instance/fetchInstances", params={"instanceName": "a1"}).json()[0]
    assert (row["connectionStatus"], row["disconnectionReasonCode"]) == ("close", 401)
    assert sandbox.api.get("/instance/connect/a1").json()["code"].startswith("2@")


def test_reconnects_after_a_passing_close_without_announcing_it(
    sandbox: Emulator, receiver: Receiver
) -> None:
    sandbox.create("a1", webhook=receiver.url)

    sandbox.do("a1", "disconnect", reason=428)

    eventually(lambda: states(receiver) == {"connecting": 1, "open": 2})
    assert not receiver.of("status.instance")


def test_logs_out_after_saying_so(sandbox: Emulator) -> None:
    sandbox.create("a1")

    answer = sandbox.api.delete("/instance/logout/a1").json()

    assert answer["status"] == "SUCCESS"
    eventually(lambda: sandbox.state("a1") == "close")


def test_frees_the_name_when_the_goodbye_is_settled(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.create("a1", webhook=f"{receiver.url}/fail500", hook={"events": ["REMOVE_INSTANCE"]})

    sandbox.api.delete("/instance/delete/a1")
    taken = sandbox.api.post(
        "/instance/create", json={"instanceName": "a1", "integration": "WHATSAPP-BAILEYS"}
    )
    again = sandbox.api.delete("/instance/delete/a1")

    assert (taken.status_code, again.status_code) == (403, 200)
    eventually(lambda: sandbox.state("a1") is None)
    assert len(receiver.of("remove.instance")) == 10
    sandbox.create("a1")


def test_holds_a_send_for_its_delay(sandbox: Emulator) -> None:
    sandbox.create("a1")

    started = time.monotonic()
    answer = sandbox.send("a1", delay=120)

    assert answer.status_code == 201
    assert time.monotonic() - started >= 0.12


def test_acts_on_the_instance_the_query_names(sandbox: Emulator) -> None:
    sandbox.create("a1", token="tok-1")
    sandbox.create("a2", token="tok-2")

    answer = sandbox.api.get(
        "/instance/connectionState/a1", params={"instanceName": "a2"}, headers={"apikey": "tok-1"}
    )

    assert answer.json()["instance"]["instanceName"] == "a2"


def test_lists_only_the_instances_of_a_token(sandbox: Emulator) -> None:
    sandbox.create("a1", token="tok-1")
    sandbox.create("a2", token="tok-2")

    rows = sandbox.api.get("/instance/fetchInstances", headers={"apikey": "tok-1"}).json()

    assert [row["name"] for row in rows] == ["a1"]
