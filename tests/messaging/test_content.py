"""What a message may consist of."""

from __future__ import annotations

from typing import Any

import pytest

from messaging.content import InvalidContent, validate_content

REPLY = {"kind": "reply", "label": "Sim", "value": "yes"}
URL = {"kind": "url", "label": "Ver", "value": "https://loja.example/pedidos/1"}
CALL = {"kind": "call", "label": "Ligar", "value": "+5511999990000"}
PIX = {"kind": "copy", "label": "Copiar PIX", "value": "0" * 512}


def faults(content: Any) -> dict[str, Any]:
    with pytest.raises(InvalidContent) as refused:
        validate_content(content)
    return refused.value.fields


@pytest.mark.parametrize(
    "content",
    [
        {"text": "Olá"},
        {"text": "x" * 4096},
        {"text": "linha um\nlinha dois\tfim"},
        {"text": "👩‍👩‍👧 مرحبا ‏שלום ‮x"},
        {"text": "Olá", "title": "t" * 60, "footer": "f" * 60},
        {"text": "Olá", "title": "", "footer": "", "buttons": []},
        {"text": "Olá", "buttons": [REPLY, REPLY | {"label": "Não"}, REPLY | {"label": "Talvez"}]},
        {"text": "Olá", "buttons": [URL, CALL, PIX]},
    ],
)
def test_takes_what_whatsapp_takes(content: dict[str, Any]) -> None:
    validate_content(content)


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        ({}, {"text"}),
        ({"text": ""}, {"text"}),
        ({"text": " \n"}, {"text"}),
        ({"text": 5}, {"text"}),
        ({"text": None}, {"text"}),
        ({"text": "x" * 4097}, {"text"}),
        ({"text": "a\x00"}, {"text"}),
        ({"text": "a\x1b[0m"}, {"text"}),
        ({"text": "a\ud800"}, {"text"}),
        ({"text": "a", "title": "t" * 61}, {"title"}),
        ({"text": "a", "title": "two\nlines"}, {"title"}),
        ({"text": "a", "footer": "f" * 61}, {"footer"}),
        ({"text": "a", "image": "x"}, {"image"}),
        ({"text": "a", "buttons": "Sim"}, {"buttons"}),
        ({"text": "a", "buttons": [REPLY | {"label": str(n)} for n in range(4)]}, {"buttons"}),
        ({"text": "a", "buttons": [REPLY, URL]}, {"buttons"}),
        ({"text": "a", "buttons": [REPLY, REPLY]}, {"buttons"}),
        ("a", {"buttons"}),
        ([], {"buttons"}),
    ],
)
def test_names_the_part_that_is_wrong(content: Any, fields: set[str]) -> None:
    assert set(faults(content)) == fields


@pytest.mark.parametrize(
    ("button", "part"),
    [
        (REPLY | {"label": "l" * 21}, "label"),
        (REPLY | {"label": " "}, "label"),
        (REPLY | {"label": "a\nb"}, "label"),
        (REPLY | {"kind": "pix"}, "kind"),
        (REPLY | {"value": ""}, "value"),
        (REPLY | {"value": 1}, "value"),
        (REPLY | {"colour": "red"}, "colour"),
        ({"kind": "reply", "label": "Sim"}, "value"),
    ],
)
def test_names_the_part_of_a_button_that_is_wrong(button: dict[str, Any], part: str) -> None:
    assert set(faults({"text": "a", "buttons": [URL, button]})["buttons"]["1"]) == {part}


@pytest.mark.parametrize(
    "button",
    [
        REPLY | {"value": "v" * 257},
        URL | {"value": "javascript:alert(1)"},
        URL | {"value": "https://"},
        URL | {"value": "http://[::1"},
        URL | {"value": "https://loja.example/" + "a" * 2000},
        CALL | {"value": "12"},
        PIX | {"value": "0" * 513},
    ],
)
def test_refuses_a_value_that_does_not_fit_its_kind(button: dict[str, Any]) -> None:
    assert set(faults({"text": "a", "buttons": [button]})["buttons"]) == {"0"}
