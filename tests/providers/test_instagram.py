"""What Instagram is asked, what its answers mean, and what it posts in either shape."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from instances.providers.base import (
    Account,
    Answer,
    InboundMessage,
    Outcome,
    ProviderError,
    StatusEvent,
    Unreadable,
)
from instances.providers.instagram import Instagram
from messaging.models import FailureCode
from messaging.outbound import outbound

INSTAGRAM = Instagram(send_timeout=7)
OWN = Account(name="ig", base_url="https://graph.instagram.example/v25.0", api_key="t", account_id="178")
PAGE = Account(
    name="ig",
    base_url="https://graph.facebook.example/v25.0",
    api_key="t",
    account_id="178",
    business_id="99",
)
ANA = "17841400000000001"
AT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def message(content: dict[str, Any]) -> Any:
    return outbound(id="m-1", to=ANA, recipient_id="", content=content)


def asked(content: dict[str, Any], account: Account = OWN) -> Any:
    call = INSTAGRAM.send(account, message(content))
    assert call.sends
    return call.request


# --- requests ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("account", "node"), [(OWN, "178"), (PAGE, "99")])
def test_sends_from_the_account_or_from_its_page(account: Account, node: str) -> None:
    request = asked({"text": "olá"}, account)

    assert request.url == f"{account.base_url}/{node}/messages"
    assert request.json == {"recipient": {"id": ANA}, "message": {"text": "olá"}}


def test_makes_quick_replies_of_reply_buttons_and_lines_of_others() -> None:
    replies = [{"kind": "reply", "label": "Sim", "value": "Y"}]
    link = [{"kind": "url", "label": "Ver", "value": "https://a.example"}]

    assert asked({"text": "?", "buttons": replies}).json["message"] == {
        "text": "?",
        "quick_replies": [{"content_type": "text", "title": "Sim", "payload": "Y"}],
    }
    assert asked({"text": "?", "buttons": link}).json["message"] == {"text": "?\n\nVer: https://a.example"}


@pytest.mark.parametrize(
    ("kind", "theirs"), [("image", "image"), ("video", "video"), ("audio", "audio"), ("document", "file")]
)
def test_sends_a_file_by_its_address(kind: str, theirs: str) -> None:
    assert asked({"type": kind, "link": "https://a.example/f"}).json["message"] == {
        "attachment": {"type": theirs, "payload": {"url": "https://a.example/f"}}
    }


def test_tags_what_a_person_wrote() -> None:
    assert asked({"text": "olá", "human_agent": True}).json | {"message": None, "recipient": None} == {
        "messaging_type": "MESSAGE_TAG",
        "tag": "HUMAN_AGENT",
        "message": None,
        "recipient": None,
    }


def test_answers_a_comment_in_private_or_for_everybody() -> None:
    private = asked({"text": "obrigado", "comment": {"id": "C1", "mode": "private"}})
    public = asked({"text": "R$ 10", "comment": {"id": "C1", "mode": "public"}})

    assert private.json == {"recipient": {"comment_id": "C1"}, "message": {"text": "obrigado"}}
    assert (public.url, public.json) == (f"{OWN.base_url}/C1/replies?message=R%24+10", None)


@pytest.mark.parametrize(
    ("content", "faults"),
    [
        ({"text": "é" * 500}, set()),
        ({"text": "é" * 501}, {"text"}),
        ({"text": "👍" * 251}, {"text"}),
        ({"type": "image", "link": "https://a.example", "caption": "c"}, {"caption"}),
        ({"type": "audio", "media_id": "5", "voice": True}, {"media_id", "voice"}),
        ({"text": "a", "reply_to": "m0"}, {"reply_to"}),
    ],
)
def test_says_before_what_instagram_would_refuse(content: dict[str, Any], faults: set[str]) -> None:
    assert INSTAGRAM.faults(message(content)).keys() == faults


def test_shows_typing_and_marks_as_seen() -> None:
    typing = INSTAGRAM.typing(OWN, message({"text": "a"}), milliseconds=1).request.json

    assert typing == {"recipient": {"id": ANA}, "sender_action": "typing_on"}
    assert INSTAGRAM.seen(OWN, ANA).request.json["sender_action"] == "mark_seen"


# --- answers ----------------------------------------------------------------------------------------------


def refusal(code: int, subcode: int | None = None, status: int = 400) -> ProviderError:
    error = {"message": "x", "code": code} | ({"error_subcode": subcode} if subcode else {})
    with pytest.raises(ProviderError) as raised:
        INSTAGRAM.send(OWN, message({"text": "a"})).read(Answer(status, {"error": error}))
    return raised.value


@pytest.mark.parametrize(
    ("code", "subcode", "outcome", "ours"),
    [
        (10, 2534022, Outcome.REJECTED, "window_closed"),
        (10, 2018278, Outcome.REJECTED, "window_closed"),
        (10, None, Outcome.INSTANCE_DOWN, "provider_misconfigured"),
        (100, 2534025, Outcome.REJECTED, "comment_answered"),
        (100, 2534014, Outcome.REJECTED, "undeliverable"),
        (100, 33, Outcome.INSTANCE_DOWN, "instance_removed"),
        (551, None, Outcome.REJECTED, "undeliverable"),
        (2, 1545133, Outcome.RETRY, "provider_unreachable"),
        (613, None, Outcome.RETRY, "throttled"),
        (190, None, Outcome.INSTANCE_DOWN, "provider_misconfigured"),
    ],
)
def test_goes_by_the_subcode_first(code: int, subcode: int | None, outcome: Outcome, ours: str) -> None:
    error = refusal(code, subcode)

    assert (error.outcome, error.code) == (outcome, ours)
    assert outcome != Outcome.REJECTED or ours in FailureCode.values


def test_reads_receipts() -> None:
    direct = INSTAGRAM.send(OWN, message({"text": "a"}))
    public = INSTAGRAM.send(OWN, message({"text": "a", "comment": {"id": "C1", "mode": "public"}}))

    receipt = direct.read(Answer(200, {"recipient_id": ANA, "message_id": "m1"}))
    assert (receipt.provider_message_id, receipt.recipient_id, receipt.status) == ("m1", ANA, "sent")
    assert public.read(Answer(200, {"id": "C2"})).provider_message_id == "C2"
    with pytest.raises(ProviderError) as unclear:
        direct.read(Answer(200, None))
    assert unclear.value.outcome == Outcome.UNKNOWN


# --- events -----------------------------------------------------------------------------------------------


def deliver(**item: Any) -> list[Any]:
    base = {"sender": {"id": ANA}, "recipient": {"id": "178"}, "timestamp": 1700000000000}
    entry = {"id": "178", "time": 1700000000000, "messaging": [base | item]}
    return INSTAGRAM.parse({"object": "instagram", "entry": [entry]})


@pytest.mark.parametrize(
    ("body", "kind", "text", "opens"),
    [
        ({"message": {"mid": "m1", "text": "oi", "reply_to": {"mid": "m0"}}}, "text", "oi", True),
        ({"message": {"mid": "m1", "attachments": [{"type": "image"}]}}, "image", "", True),
        ({"message": {"mid": "m1", "attachments": [{"type": "story_mention"}]}}, "story_mention", "", True),
        ({"message": {"mid": "m1", "is_unsupported": True}}, "unsupported", "", True),
        ({"message": {"mid": "m1", "is_deleted": True}}, "deleted", "", False),
        ({"postback": {"mid": "m1", "title": "Sim", "payload": "Y"}}, "postback", "Sim", True),
        ({"reaction": {"mid": "m1", "action": "react", "emoji": "❤"}}, "reaction", "❤", False),
        ({"reaction": {"mid": "m1", "action": "unreact", "emoji": "❤"}}, "reaction", "", False),
    ],
)
def test_keeps_what_a_person_sends(body: dict[str, Any], kind: str, text: str, opens: bool) -> None:
    (event,) = deliver(**body)

    assert isinstance(event, InboundMessage)
    assert (event.kind, event.text, event.opens_window, event.at) == (kind, text, opens, AT)
    assert (event.sender_id, event.sender_number, event.account_id) == (ANA, "", "178")


def test_takes_an_echo_for_news_of_ours_and_for_what_the_owner_wrote() -> None:
    sent = {"sender": {"id": "178"}, "recipient": {"id": ANA}}

    receipt, written = deliver(**sent, message={"mid": "m2", "text": "olá", "is_echo": True})

    assert receipt == StatusEvent("m2", "submitted", recipient_id=ANA, text="olá", account_id="178")
    assert (written.outgoing, written.sender_id, written.opens_window) == (True, ANA, False)


def test_knows_what_was_seen() -> None:
    assert deliver(read={"mid": "m2"}) == [StatusEvent("m2", "read", account_id="178")]


COMMENT = {"id": "C1", "text": "preço?", "from": {"id": ANA, "username": "ana"}, "media": {"id": "M1"}}


@pytest.mark.parametrize(
    "entry",
    [
        {"changes": [{"field": "comments", "value": COMMENT}]},
        {"field": "comments", "value": COMMENT},
        {"changes": [{"field": "live_comments", "value": COMMENT}]},
    ],
)
def test_reads_a_comment_in_either_shape(entry: dict[str, Any]) -> None:
    (event,) = INSTAGRAM.parse({"object": "instagram", "entry": [{"id": "178", "time": 1700000000, **entry}]})

    assert (event.kind, event.text, event.sender_name, event.at) == ("comment", "preço?", "ana", AT)
    assert not event.outgoing
    assert not event.opens_window


@pytest.mark.parametrize("author", [{"id": "178"}, {"id": "5", "self_ig_scoped_id": "178"}])
def test_never_takes_its_own_comment_for_a_person_s(author: dict[str, str]) -> None:
    change = {"field": "comments", "value": COMMENT | {"from": author}}

    (event,) = INSTAGRAM.parse({"object": "instagram", "entry": [{"id": "178", "changes": [change]}]})

    assert event.outgoing


@pytest.mark.parametrize("body", [None, {}, {"object": "page"}])
def test_refuses_what_is_no_delivery(body: Any) -> None:
    with pytest.raises(ValueError, match="not a delivery"):
        INSTAGRAM.parse(body)


def test_keeps_the_good_beside_the_bad() -> None:
    assert [type(event) for event in deliver(message={"mid": None, "text": "a"}, read={"mid": "m2"})] == [
        Unreadable,
        StatusEvent,
    ]
    assert deliver(optin={"x": 1}) == []
