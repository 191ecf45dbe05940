"""The adapter over HTTP against the sandbox: what it concludes is what really happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from instances.providers.base import Account, Finding, Found, OutboundMessage, Outcome, ProviderError, Receipt
from instances.providers.evolution import Evolution
from instances.providers.http import perform
from tests.sandbox.emulator import KEY, Emulator, eventually

EVOLUTION = Evolution(send_timeout=20)
IMPATIENT = Evolution(send_timeout=2)  # where no answer will come
NAME = "loja"


@pytest.fixture
def account(sandbox: Emulator) -> Iterator[Account]:
    sandbox.create(NAME)
    yield Account(name=NAME, base_url=sandbox.url, api_key=KEY)
    sandbox.disarm()


def message(text: str = "Olá") -> OutboundMessage:
    return OutboundMessage(id="m1", to="+5547988887777", text=text, attempted_at=datetime.now(UTC))


def outcome_of(
    account: Account, outbound: OutboundMessage, *, by: Evolution = EVOLUTION
) -> Receipt | ProviderError:
    try:
        return perform(by.send(account, outbound))
    except ProviderError as error:
        return error


def find(account: Account, outbound: OutboundMessage) -> Found:
    return perform(EVOLUTION.find(account, outbound, now=datetime.now(UTC)))


def test_sends(sandbox: Emulator, account: Account) -> None:
    receipt = perform(EVOLUTION.send(account, message()))

    (entry,) = sandbox.ledger()
    assert receipt == Receipt(entry["key_id"], "554788887777@s.whatsapp.net", "submitted")
    assert entry["text"] == "Olá"


def test_types(account: Account) -> None:
    perform(EVOLUTION.typing(account, message(), milliseconds=10))


NOT_SENT = {
    "connection_closed_400": Outcome.INSTANCE_DOWN,
    "connection_closed_500": Outcome.INSTANCE_DOWN,
    "type_error_400": Outcome.INSTANCE_DOWN,
    "on_whatsapp_500": Outcome.INSTANCE_DOWN,
    "not_on_whatsapp": Outcome.REJECTED,
    "object_object_400": Outcome.REJECTED,
    "unauthorized_401": Outcome.INSTANCE_DOWN,
    "forbidden_403": Outcome.INSTANCE_DOWN,
    "instance_404": Outcome.INSTANCE_DOWN,
    "license_503": Outcome.INSTANCE_DOWN,
    "too_many_429": Outcome.RETRY,
}
PERHAPS_SENT = ["timed_out_400", "bad_gateway_502", "gateway_timeout_504", "internal_500"]


@pytest.mark.parametrize(("shape", "outcome"), NOT_SENT.items())
def test_concludes_that_nothing_went_out(
    sandbox: Emulator, account: Account, shape: str, outcome: Outcome
) -> None:
    sandbox.arm("error", shape=shape)

    error = outcome_of(account, message())

    assert isinstance(error, ProviderError)
    assert error.outcome == outcome
    assert sandbox.ledger() == []


@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("shape", PERHAPS_SENT)
def test_leaves_open_what_it_cannot_know(
    sandbox: Emulator, account: Account, shape: str, accepted: bool
) -> None:
    sandbox.arm("error", shape=shape, accepted=accepted)

    error = outcome_of(account, message())

    assert isinstance(error, ProviderError)
    assert error.outcome == Outcome.UNKNOWN
    assert len(sandbox.ledger()) == accepted


@pytest.mark.parametrize(
    ("kind", "params", "sent"),
    [
        ("answer_lost", {}, 1),
        ("reset_before", {}, 0),
        ("hang", {"accepted": True}, 1),
        ("hang", {"accepted": False}, 0),
        ("error", {"shape": "empty_201"}, 1),
    ],
)
def test_leaves_open_what_got_no_answer(
    sandbox: Emulator, account: Account, kind: str, params: dict[str, object], sent: int
) -> None:
    sandbox.arm(kind, **params)

    error = outcome_of(account, message(), by=IMPATIENT if kind == "hang" else EVOLUTION)

    assert isinstance(error, ProviderError)
    assert error.outcome == Outcome.UNKNOWN
    assert len(sandbox.ledger()) == sent


def test_takes_a_message_that_only_could_not_be_saved_for_sent(sandbox: Emulator, account: Account) -> None:
    sandbox.arm("error", shape="prisma_400")
    outbound = message()

    assert outcome_of(account, outbound) == Receipt("", "", "submitted")
    assert len(sandbox.ledger()) == 1
    assert find(account, outbound).finding == Finding.STILL_UNKNOWN


def test_finds_what_went_out_without_an_answer(sandbox: Emulator, account: Account) -> None:
    perform(EVOLUTION.send(account, message("outra")))
    sandbox.arm("answer_lost", times=1)
    lost = message()
    outcome_of(account, lost)
    perform(EVOLUTION.send(account, message("mais uma")))

    found = find(account, lost)

    assert found.finding == Finding.FOUND
    assert found.provider_message_id == sandbox.ledger()[1]["key_id"]
    assert found.recipient_id == "554788887777@s.whatsapp.net"


def test_finds_how_far_a_message_got(sandbox: Emulator, account: Account) -> None:
    receipt = perform(EVOLUTION.send(account, message()))
    known = replace(message(), provider_message_id=receipt.provider_message_id)

    eventually(lambda: find(account, known).status == "read")


def test_does_not_find_what_never_went_out(sandbox: Emulator, account: Account) -> None:
    perform(EVOLUTION.send(account, message("outra")))
    sandbox.arm("reset_before", times=1)
    lost = message()
    outcome_of(account, lost)

    assert find(account, lost).finding == Finding.STILL_UNKNOWN
