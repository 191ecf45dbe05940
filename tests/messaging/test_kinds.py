"""Every kind of content that Meta's Cloud API knows, and what is wrong with one that it would refuse."""

from __future__ import annotations

from typing import Any

import pytest

from messaging.content import InvalidContent, kind_of, summary, validate_content
from tests.messaging.contents import CONTENTS, LIST, TEMPLATE


def faults(content: Any) -> dict[str, Any]:
    with pytest.raises(InvalidContent) as refused:
        validate_content(content)
    return refused.value.fields


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_takes_every_kind(content: dict[str, Any]) -> None:
    validate_content(content)
    validate_content(content | ({} if kind_of(content) == "reaction" else {"reply_to": "wamid.QUOTED=="}))


IMAGE = CONTENTS["image"]
ROW = {"id": "a", "title": "A"}


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        ({"type": "hologram"}, {"type"}),
        ({"type": ["text"]}, {"type"}),
        ({"type": "image"}, {"link"}),
        (IMAGE | {"media_id": "5"}, {"link"}),
        (IMAGE | {"link": "ftp://a.example/b"}, {"link"}),
        (IMAGE | {"caption": "c" * 1025}, {"caption"}),
        (IMAGE | {"colour": "red"}, {"colour"}),
        ({"type": "image", "media_id": "wamid"}, {"media_id"}),
        ({"type": "audio", "media_id": "5", "caption": "a"}, {"caption"}),
        ({"type": "audio", "media_id": "5", "voice": "yes"}, {"voice"}),
        ({"type": "sticker", "link": "https://a.example/b.webp", "caption": "a"}, {"caption"}),
        ({"type": "document", "media_id": "5", "filename": "f" * 257}, {"filename"}),
        (LIST | {"sections": []}, {"sections"}),
        (LIST | {"sections": [{"title": "S", "rows": []}]}, {"sections"}),
        (LIST | {"sections": [{"rows": [ROW]}, {"rows": [ROW | {"id": "b"}]}]}, {"sections"}),
        (LIST | {"sections": [{"rows": [ROW | {"id": str(n)} for n in range(11)]}]}, {"sections"}),
        (LIST | {"sections": [{"rows": [ROW, ROW]}]}, {"sections"}),
        (LIST | {"sections": [{"rows": [ROW | {"title": "t" * 25}]}]}, {"sections"}),
        (LIST | {"button": "b" * 21}, {"button"}),
        (LIST | {"text": "x" * 1025}, {"text"}),
        ({"type": "location", "latitude": 91, "longitude": 0}, {"latitude"}),
        ({"type": "location", "latitude": "1", "longitude": 0}, {"latitude"}),
        ({"type": "location", "latitude": True, "longitude": 0}, {"latitude"}),
        ({"type": "contacts", "contacts": []}, {"contacts"}),
        ({"type": "contacts", "contacts": [{"phones": []}]}, {"contacts"}),
        ({"type": "reaction", "message_id": "wamid.A", "emoji": 1}, {"emoji"}),
        ({"type": "reaction", "emoji": "👍"}, {"message_id"}),
        ({"type": "flow", "text": "a", "button": "b", "flow_id": "1", "data": {"a": 1}}, {"data"}),
        (TEMPLATE | {"name": "Order Update"}, {"name"}),
        (TEMPLATE | {"language": "Portuguese"}, {"language"}),
        (TEMPLATE | {"components": [{"type": "footer"}]}, {"components"}),
        (TEMPLATE | {"components": [{"type": "button", "parameters": []}]}, {"components"}),
        (TEMPLATE | {"components": [{"type": "body", "index": "0"}]}, {"components"}),
        (TEMPLATE | {"components": [{"type": "body", "parameters": [{"type": "text"}]}]}, {"components"}),
        ({"text": "a", "reply_to": "with space"}, {"reply_to"}),
        ({"text": "a", "comment": {"id": "1", "mode": "loud"}}, {"comment"}),
    ],
)
def test_names_the_part_that_is_wrong(content: Any, fields: set[str]) -> None:
    assert set(faults(content)) == fields


def test_names_a_fault_deep_inside() -> None:
    wrong = {"type": "body", "parameters": [{"type": "text", "text": "Ana", "payload": "x"}]}

    found = faults(TEMPLATE | {"components": [wrong]})

    assert found["components"]["0"]["parameters"].keys() == {"0"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"text": "Olá"}, "Olá"),
        (IMAGE, "Nova coleção"),
        ({"type": "document", "media_id": "1", "filename": "nota.pdf"}, "nota.pdf"),
        (TEMPLATE, "order_update"),
        ({"type": "sticker", "media_id": "1"}, ""),
    ],
)
def test_sums_a_content_up(content: dict[str, Any], words: str) -> None:
    assert summary(content) == words
