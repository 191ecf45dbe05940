"""Delivery of webhooks: who gets what, where, with which headers, and what is tried again."""

from __future__ import annotations

import asyncio

import httpx
import jwt
import pytest

from sandbox.evolution.events import POLICY
from sandbox.faults import Faults, Target
from sandbox.webhooks import Delivery, WebhookSender
from tests.sandbox.emulator import ALL_RECEIPTS, Emulator, Receiver, eventually

SECRET = "a secret of the length that HS256 asks for"


def test_fires_send_message_with_the_body_of_the_answer(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.create("a1", webhook=f"{receiver.url}/h")

    answer = sandbox.send("a1").json()

    (sent,) = eventually(lambda: receiver.of("send.message"))
    assert sent.body["data"] == answer
    assert sent.body["destination"] == f"{receiver.url}/h"
    assert sent.body["apikey"] is None


def test_plays_the_receipts_in_order(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.create("a1", webhook=receiver.url)

    key_id = sandbox.send("a1").json()["key"]["id"]

    eventually(lambda: receiver.statuses() == ALL_RECEIPTS)
    assert {r.body["data"]["keyId"] for r in receiver.of("messages.update")} == {key_id}
    found = sandbox.api.post("/chat/findStatusMessage/a1", json={"where": {"id": key_id}}).json()
    assert [row["status"] for row in found] == ["SERVER_ACK", "DELIVERY_ACK", "READ"]
    assert sandbox.ledger()[0]["status"] == "READ"


def test_sends_no_receipts_for_groups(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.create("a1", webhook=receiver.url)

    sandbox.send("a1", number="120363000000000000@g.us")
    sandbox.send("a1")

    eventually(lambda: receiver.statuses() == ALL_RECEIPTS)
    assert {r.body["data"]["remoteJid"] for r in receiver.of("messages.update")} == {
        "5511987654321@s.whatsapp.net"
    }


def test_posts_by_event_without_a_trailing_slash(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.create("a1", webhook=f"{receiver.url}/h", hook={"byEvents": True})

    sandbox.send("a1")

    paths = {"send.message": "/h/send-message", "messages.update": "/h/messages-update"}
    for event, path in paths.items():
        assert eventually(lambda event=event: receiver.of(event))[0].path == path
    assert receiver.of("send.message")[0].body["destination"] == f"{receiver.url}/h"


def test_sends_custom_headers_and_signs_with_the_jwt_key(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.create("a1", webhook=receiver.url, hook={"headers": {"X-Pilot-Secret": "s", "jwt_key": SECRET}})

    headers = eventually(lambda: receiver.of("instance.create"))[0].headers

    claims = jwt.decode(headers["Authorization"].removeprefix("Bearer "), SECRET, algorithms=["HS256"])
    assert headers["X-Pilot-Secret"] == "s"
    assert "jwt_key" not in headers
    assert claims["exp"] - claims["iat"] == 600
    assert (claims["app"], claims["action"]) == ("evolution", "webhook")


def test_calls_only_for_subscribed_events(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.create("a1", webhook=receiver.url, hook={"events": ["MESSAGES_UPDATE"]})

    sandbox.send("a1")

    eventually(lambda: receiver.statuses() == ALL_RECEIPTS)
    assert {r.body["event"] for r in receiver.received} == {"messages.update"}


@pytest.mark.parametrize("change", [{"enabled": False}, {"url": "notaurl"}])
def test_delivers_nothing_to_a_webhook_that_cannot_be_called(
    sandbox: Emulator, receiver: Receiver, change: dict[str, object]
) -> None:
    sandbox.create("quiet", webhook=receiver.url)
    sandbox.create("heard", webhook=receiver.url)
    webhook = {"enabled": True, "url": receiver.url, "events": [], **change}
    sandbox.api.post("/webhook/set/quiet", json={"webhook": webhook})

    sandbox.send("quiet")
    sandbox.send("heard")

    eventually(lambda: receiver.statuses() == ALL_RECEIPTS)
    assert not receiver.of("send.message", instance="quiet")


def test_names_the_sender_only_once_connected(sandbox: Emulator, receiver: Receiver) -> None:
    sandbox.create("a1", webhook=receiver.url, pair=False)
    sandbox.do("a1", "pair", owner="5511900000001")
    sandbox.send("a1")

    created = eventually(lambda: receiver.of("instance.create"))[0]
    sent = eventually(lambda: receiver.of("send.message"))[0]
    assert "sender" not in created.body
    assert sent.body["sender"] == "5511900000001@s.whatsapp.net"


def test_retries_until_delivered_with_the_same_body(sandbox: Emulator, receiver: Receiver) -> None:
    receiver.script = [500, 503, 302, 200]
    sandbox.create("a1", webhook=receiver.url, hook={"events": ["INSTANCE_CREATE"]}, pair=False)

    eventually(lambda: len(receiver.received) == 4)
    sandbox.do("a1", "webhook", event="instance.create", data={"last": True})

    eventually(lambda: receiver.received[-1].body["data"] == {"last": True})
    assert len(receiver.received) == 5
    assert all(r.body == receiver.received[0].body for r in receiver.received[:4])


def test_retries_a_receiver_that_refuses_the_connection(sandbox: Emulator) -> None:
    sandbox.create("a1", webhook="http://127.0.0.1:1/", pair=False)

    sandbox.api.delete("/instance/delete/a1")

    assert sandbox.state("a1") == "close"
    eventually(lambda: sandbox.state("a1") is None)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_drops_the_event_on_a_final_status(sandbox: Emulator, receiver: Receiver, status: int) -> None:
    receiver.script = [status]
    sandbox.create("a1", webhook=receiver.url, hook={"events": ["INSTANCE_CREATE"]}, pair=False)
    eventually(lambda: receiver.received)

    sandbox.do("a1", "webhook", event="instance.create", data={"last": True})

    eventually(lambda: receiver.received[-1].body["data"] == {"last": True})
    assert len(receiver.received) == 2


def test_gives_up_after_ten_attempts_on_the_schedule() -> None:
    attempts, pauses = deliver_to_a_receiver_answering(500)

    assert attempts == 10
    for pause, delay in zip(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300], strict=True):
        assert 0.8 * delay <= pause <= 1.2 * delay
    assert pauses != [5, 10, 20, 40, 80, 160, 300, 300, 300]


@pytest.mark.parametrize(("status", "attempts"), [(204, 1), (404, 1), (301, 10), (429, 10)])
def test_tries_again_unless_told_a_success_or_a_final_no(status: int, attempts: int) -> None:
    assert deliver_to_a_receiver_answering(status)[0] == attempts


def deliver_to_a_receiver_answering(status: int) -> tuple[int, list[float]]:
    """How many attempts were made, and the pauses between them."""
    attempts: list[httpx.Request] = []
    pauses: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        attempts.append(request)
        return httpx.Response(status)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    sender = WebhookSender(
        faults=Faults(), policy=POLICY, scale=1, transport=httpx.MockTransport(answer), pause=pause
    )
    delivery = Delivery(url="http://pilot.test/h", headers={}, body=b"{}", target=Target(instance="a1"))
    asyncio.run(sender.deliver(delivery))
    return len(attempts), pauses


def test_waits_thirty_seconds_for_a_receiver() -> None:
    assert POLICY.timeout == 30
