"""What the Cloud API is asked: every body against Meta's own specification, and what it must say."""

from __future__ import annotations

from typing import Any

import pytest

from instances.providers.base import Account, OutboundMessage
from instances.providers.meta import MetaCloud
from messaging.outbound import outbound
from tests.messaging.contents import CONTENTS, LIST
from tests.providers.meta_schema import complaints

META = MetaCloud(send_timeout=7)
ACCOUNT = Account(
    name="loja",
    base_url="https://graph.example/v25.0",
    api_key="token",
    account_id="111",
    business_id="waba",
)
PREVIEWING = Account(
    name="loja", base_url="https://graph.example/v25.0", api_key="token", account_id="111", link_preview=True
)


def message(content: dict[str, Any], to: str = "+5511999990000") -> OutboundMessage:
    return outbound(id="m-1", to=to, recipient_id="551199990000", content=content)


def body(content: dict[str, Any], account: Account = ACCOUNT, **fields: Any) -> dict[str, Any]:
    return META.send(account, message(content, **fields)).request.json


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_asks_only_what_the_specification_allows(content: dict[str, Any]) -> None:
    assert complaints(body(content)) == []


def test_finds_fault_with_what_the_specification_forbids() -> None:
    assert complaints(body({"text": "a"}) | {"colour": "red"})
    assert complaints({**body(CONTENTS["image"]), "image": {"id": "1", "link": "https://a.example"}})


def test_hands_a_text_over_with_our_own_id() -> None:
    call = META.send(ACCOUNT, message({"text": "Olá"}))

    assert call.sends
    assert (call.request.method, call.request.url) == ("POST", "https://graph.example/v25.0/111/messages")
    assert call.request.headers == {"Authorization": "Bearer token"}
    assert call.request.timeout == 7
    assert call.request.json == {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to": "5511999990000",
        "type": "text",
        "text": {"body": "Olá", "preview_url": False},
        "biz_opaque_callback_data": "m-1",
    }


def test_writes_to_a_person_whose_number_is_hidden_by_their_business_scoped_id() -> None:
    asked = body({"text": "Olá"}, to="BR.ENT.1234567890")

    assert asked["recipient"] == "BR.ENT.1234567890"
    assert "to" not in asked
    assert complaints(asked) == []


def test_quotes_the_message_that_it_answers() -> None:
    asked = body({"text": "Olá", "reply_to": "wamid.Q"})

    assert asked["context"] == {"message_id": "wamid.Q"}
    assert complaints(asked) == []


def test_shows_a_preview_where_the_instance_wants_one_and_the_text_has_an_address() -> None:
    assert body({"text": "https://a.example"}, PREVIEWING)["text"]["preview_url"]
    assert not body({"text": "a"}, PREVIEWING)["text"]["preview_url"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("reply buttons", "button"), ("link button", "cta_url"), ("list", "list"), ("flow", "flow")],
)
def test_makes_a_message_to_choose_from(name: str, kind: str) -> None:
    interactive = body(CONTENTS[name])["interactive"]

    assert interactive["type"] == kind
    assert interactive["body"]["text"] == CONTENTS[name]["text"]
    assert interactive.get("header", {}).get("text", "") == CONTENTS[name].get("title", "")
    assert interactive.get("footer", {}).get("text", "") == CONTENTS[name].get("footer", "")


def test_writes_other_buttons_as_lines() -> None:
    assert body(CONTENTS["mixed buttons"])["text"]["body"] == (
        "Pague\n\nCopiar PIX: 000201\nLigar: +551130000000"
    )


def test_writes_buttons_as_lines_below_a_text_that_is_too_long_for_them() -> None:
    content = CONTENTS["reply buttons"] | {"text": "x" * 1025}

    assert body(content)["text"]["body"].endswith("1 – Sim\n2 – Não\n\n_Loja_")


def test_leaves_out_what_is_empty() -> None:
    row = body(LIST)["interactive"]["action"]["sections"][1]["rows"][0]
    untitled = LIST | {"sections": [{"rows": [{"id": "a", "title": "A"}]}]}

    assert row == {"id": "t2", "title": "14 h"}
    assert "title" not in body(untitled)["interactive"]["action"]["sections"][0]
    assert body({"type": "audio", "media_id": "5", "voice": False})["audio"] == {"id": "5"}


def test_gives_a_contact_the_second_part_of_a_name_that_meta_wants() -> None:
    content = {"type": "contacts", "contacts": [{"name": {"formatted_name": "Ana"}}]}

    assert body(content)["contacts"][0]["name"] == {"formatted_name": "Ana", "first_name": "Ana"}


def test_takes_an_emoji_off_with_an_empty_one() -> None:
    assert body(CONTENTS["reaction taken off"])["reaction"]["emoji"] == ""


@pytest.mark.parametrize(
    ("content", "faults"),
    [
        ({"text": "x" * 4096}, set()),
        ({"text": "x" * 4096, "footer": "f"}, {"text"}),
        ({"text": "a", "comment": {"id": "1", "mode": "private"}}, {"comment"}),
        (CONTENTS["list"], set()),
    ],
)
def test_says_before_what_meta_would_refuse(content: dict[str, Any], faults: set[str]) -> None:
    assert META.faults(message(content)).keys() == faults


def test_marks_as_read_and_shows_typing_by_the_person_s_message() -> None:
    typing = OutboundMessage(id="m-1", to="+5511999990000", text="a", last_received_id="wamid.IN")

    assert complaints(META.seen(ACCOUNT, "wamid.IN").request.json) == []
    asked = META.typing(ACCOUNT, typing, milliseconds=1000).request.json
    assert complaints(asked) == []
    assert asked["typing_indicator"] == {"type": "text"}


def test_uploads_a_file_as_a_form() -> None:
    request = META.upload(ACCOUNT, name="a.png", mime_type="image/png", data=b"x").request

    assert request.url == "https://graph.example/v25.0/111/media"
    assert request.upload is not None
    assert (request.upload.name, request.upload.mime_type) == ("a.png", "image/png")
    assert request.upload.fields == {"messaging_product": "whatsapp", "type": "image/png"}
    assert "x" not in repr(request.upload.fields)
