"""The emulated Instagram messaging API: direct messages, comments and their rules."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.sandbox.emulator import Emulator, Receiver, eventually
from tests.sandbox.graph import GraphAccount, direct, values

ANA = "17841400000000001"
DAY = 86_400


@pytest.fixture
def account(sandbox: Emulator, receiver: Receiver) -> GraphAccount:
    """An account that Ana has just written to."""
    account = GraphAccount(sandbox, "178", kind="instagram", business_id="page-1", webhook=receiver.url)
    account.do("inbound", **{"from": ANA, "text": "oi"})
    return account


def send(account: GraphAccount, recipient: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    message = {"recipient": recipient or {"id": ANA}, "message": {"text": "olá"}, **body}
    return account.api.post("/me/messages", json=message)


def subcode(answer: httpx.Response) -> tuple[int, int]:
    return answer.json()["error"]["code"], answer.json()["error"].get("error_subcode", 0)


def test_takes_a_message_over_echoes_it_and_says_when_it_was_seen(
    account: GraphAccount, receiver: Receiver
) -> None:
    answer = send(account)

    mid = answer.json()["message_id"]
    assert answer.json()["recipient_id"] == ANA
    eventually(lambda: any(item.get("read", {}).get("mid") == mid for item in direct(receiver)))
    echo = next(item for item in direct(receiver) if item.get("message", {}).get("is_echo"))
    assert (echo["sender"]["id"], echo["message"]["mid"]) == ("178", mid)
    assert [(e["key_id"], e["kind"]) for e in account.emulator.ledger()] == [(mid, "direct")]


def test_can_echo_before_it_answers(account: GraphAccount, receiver: Receiver) -> None:
    account.emulator.arm("webhooks_before_answer")

    mid = send(account).json()["message_id"]

    assert mid in [item.get("message", {}).get("mid") for item in direct(receiver)]


def test_closes_the_window_after_a_day_and_for_humans_after_a_week(account: GraphAccount) -> None:
    account.advance(DAY + 1)
    human = {"messaging_type": "MESSAGE_TAG", "tag": "HUMAN_AGENT"}

    assert subcode(send(account)) == (10, 2534022)
    assert send(account, **human).is_success
    account.advance(6 * DAY)
    assert subcode(send(account, **human)) == (10, 2534022)


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        ({"text": "é" * 501}, True),
        ({"text": "é" * 500}, False),
        ({}, True),
        ({"text": "a", "attachment": {}}, False),
    ],
)
def test_counts_bytes(account: GraphAccount, message: dict[str, Any], refused: bool) -> None:
    assert send(account, message=message).is_error is refused


def test_refuses_a_stranger(account: GraphAccount) -> None:
    assert subcode(send(account, {"id": "1"})) == (100, 2534014)


@pytest.mark.parametrize("shape", ["changes", "field"])
def test_answers_a_comment_once_in_private(account: GraphAccount, receiver: Receiver, shape: str) -> None:
    account.change(field_shape=shape)
    comment = account.do("comment", **{"from": ANA, "text": "preço?"})["id"]
    eventually(
        lambda: any("field" in e or "changes" in e for r in receiver.received for e in r.body["entry"])
    )

    assert send(account, {"comment_id": comment}).is_success
    assert subcode(send(account, {"comment_id": comment})) == (100, 2534025)
    assert subcode(send(account, {"comment_id": "0"})) == (100, 33)


def test_forgets_a_comment_after_a_week(account: GraphAccount) -> None:
    comment = account.do("comment", **{"from": ANA, "text": "preço?"})["id"]
    account.advance(7 * DAY)

    assert subcode(send(account, {"comment_id": comment})) == (10, 2534022)


def test_answers_below_a_comment_for_everybody(account: GraphAccount, receiver: Receiver) -> None:
    comment = account.do("comment", **{"from": ANA, "text": "preço?"})["id"]

    answer = account.api.post(f"/{comment}/replies", params={"message": "R$ 10"})

    assert answer.is_success
    eventually(lambda: any(value.get("parent_id") == comment for value in values(receiver)))
    (own,) = [value for value in values(receiver) if value.get("parent_id")]
    assert own["from"]["id"] == "178"
