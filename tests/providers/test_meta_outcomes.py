"""What the Cloud API's answers mean for a message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from instances.providers.base import Account, Answer, OutboundMessage, Outcome, ProviderError
from instances.providers.graph.errors import TABLE
from instances.providers.meta import MetaCloud
from messaging.models import FailureCode

META = MetaCloud()
ACCOUNT = Account(name="loja", base_url="https://graph.example/v25.0", api_key="token", account_id="111")
CALL = META.send(ACCOUNT, OutboundMessage(id="m-1", to="+5511999990000", text="a"))


def envelope(code: Any, **more: Any) -> dict[str, Any]:
    return {"error": {"message": f"(#{code}) a title", "type": "OAuthException", "code": code, **more}}


def refusal(status: int, body: Any, **headers: str) -> ProviderError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with pytest.raises(ProviderError) as raised:
        CALL.read(Answer(status, body, named))
    return raised.value


@pytest.mark.parametrize(
    ("body", "recipient"),
    [
        ({"contacts": [{"input": "+5511999990000", "wa_id": "551199990000"}]}, "551199990000"),
        ({"contacts": [{"input": "BR.1", "user_id": "BR.1"}]}, "BR.1"),
        ({}, ""),
    ],
)
def test_reads_a_receipt(body: dict[str, Any], recipient: str) -> None:
    message = {"id": "wamid.A", "message_status": "accepted"}

    receipt = CALL.read(Answer(200, body | {"messages": [message]}))

    assert (receipt.provider_message_id, receipt.recipient_id, receipt.status) == (
        "wamid.A",
        recipient,
        "submitted",
    )


@pytest.mark.parametrize("body", [None, {}, {"messages": []}, {"messages": [{}]}, {"messages": "x"}, []])
def test_takes_a_success_without_a_message_for_unclear(body: Any) -> None:
    assert refusal(200, body).outcome == Outcome.UNKNOWN


R, W, N = Outcome.RETRY, Outcome.INSTANCE_DOWN, Outcome.REJECTED


@pytest.mark.parametrize(
    ("code", "outcome", "ours"),
    [
        (131047, N, "window_closed"),
        (131026, N, "undeliverable"),
        (131050, N, "opted_out"),
        (131049, N, "held_back"),
        (130472, N, "held_back"),
        (132000, N, "template_rejected"),
        (132001, N, "template_rejected"),
        (132015, R, "throttled"),
        (100, N, "rejected"),
        (131008, N, "rejected"),
        (131009, N, "rejected"),
        (131053, N, "rejected"),
        (131056, R, "throttled"),
        (130429, R, "throttled"),
        (80007, R, "throttled"),
        (4, R, "throttled"),
        (131000, R, "provider_unreachable"),
        (131016, R, "provider_unreachable"),
        (190, W, "provider_misconfigured"),
        (0, W, "provider_misconfigured"),
        (10, W, "provider_misconfigured"),
        (230, W, "provider_misconfigured"),
        (131031, W, "provider_misconfigured"),
        (131042, W, "provider_misconfigured"),
    ],
)
@pytest.mark.parametrize("status", [400, 403, 429, 500])
def test_goes_by_the_code_whatever_the_http_status(
    code: int, outcome: Outcome, ours: str, status: int
) -> None:
    error = refusal(status, envelope(code))

    assert (error.outcome, error.code) == (outcome, ours)


def test_has_a_word_for_every_final_no_that_a_tenant_can_read() -> None:
    final = {verdict.code for verdict in TABLE.values() if verdict.outcome == Outcome.REJECTED}

    assert final <= set(FailureCode.values)


def test_knows_an_object_that_is_gone_by_the_subcode() -> None:
    error = refusal(400, envelope(100, error_subcode=33))

    assert (error.outcome, error.code) == (Outcome.INSTANCE_DOWN, "instance_removed")


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (400, envelope(999999), N),
        (500, envelope(999999), Outcome.UNKNOWN),
        (502, None, Outcome.UNKNOWN),
        (500, {"error": "x"}, Outcome.UNKNOWN),
        (429, None, R),
        (401, None, W),
        (400, None, Outcome.UNKNOWN),
        (400, envelope("131047"), N),
        (400, envelope(True), N),
    ],
)
def test_is_careful_where_it_does_not_know(status: int, body: Any, outcome: Outcome) -> None:
    assert refusal(status, body).outcome == outcome


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"error_data": {"details": "too many"}}, "131056: too many"),
        ({"error_data": "a bare string"}, "131056: a bare string"),
        ({}, "131056: (#131056) a title"),
    ],
)
def test_says_what_meta_says_most_precisely(data: dict[str, Any], said: str) -> None:
    assert refusal(400, envelope(131056, **data)).detail == said


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 1),
        ({"retry_after": "17"}, 17),
        ({"retry_after": "soon"}, 1),
        ({"x_business_use_case_usage": json.dumps({"1": [{"estimated_time_to_regain_access": 5}]})}, 300),
        ({"x_business_use_case_usage": json.dumps({"1": [{"estimated_time_to_regain_access": 0}]})}, 1),
        ({"x_business_use_case_usage": "{}"}, 1),
        ({"x_business_use_case_usage": "garbage"}, 1),
        ({"x_business_use_case_usage": "[1]"}, 1),
    ],
)
def test_waits_as_long_as_meta_asks(headers: dict[str, str], seconds: float) -> None:
    assert refusal(429, envelope(130429), **headers).retry_after == seconds
