"""Templates and their variables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from instances.providers.base import Button
from messaging.content import InvalidContent
from messaging.rendering import InvalidVariables, buttons_of, parse_template, render, variables_of

RICH = {
    "text": "Olá {{nome}}, pedido {{ pedido.numero }}.",
    "title": "{{loja}}",
    "footer": "Obrigado",
    "buttons": [{"kind": "url", "label": "Ver {{ pedido.numero }}", "value": "{{link}}"}],
}


def refused_variables(content: dict[str, Any], variables: dict[str, Any]) -> set[str]:
    with pytest.raises(InvalidVariables) as refused:
        render(content, variables)
    return set(refused.value.fields["variables"])


def test_fills_in_every_part() -> None:
    values = {"nome": "Ana", "pedido.numero": 1042, "loja": "Centro", "link": "https://loja.example/1042"}

    assert render(RICH, values) == {
        "text": "Olá Ana, pedido 1042.",
        "title": "Centro",
        "footer": "Obrigado",
        "buttons": [{"kind": "url", "label": "Ver 1042", "value": "https://loja.example/1042"}],
    }


def test_does_not_change_the_template() -> None:
    before = json.dumps(RICH)
    render(RICH, {"nome": "Ana", "pedido.numero": 1, "loja": "Centro", "link": "https://a.example"})
    assert json.dumps(RICH) == before


def test_lists_the_variables() -> None:
    assert variables_of(RICH) == ["link", "loja", "nome", "pedido.numero"]


def test_names_every_missing_and_unknown_variable() -> None:
    assert refused_variables({"text": "{{a}} {{b}} {{c}}"}, {"b": "1", "d": "2"}) == {"a", "c", "d"}


def test_tells_upper_from_lower_case() -> None:
    assert refused_variables({"text": "{{Nome}}"}, {"nome": "Ana"}) == {"Nome", "nome"}


@pytest.mark.parametrize(
    "value", [None, True, [], {}, ["Ana"], float("nan"), float("inf"), "a\x00b", "a\x1bb", "a\x7fb", "\udc00"]
)
def test_refuses_values_that_are_no_text_and_no_number(value: Any) -> None:
    assert refused_variables({"text": "{{a}}"}, {"a": value}) == {"a"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [("", ""), (0, "0"), (-3, "-3"), (9.9, "9.9"), ("a\nb", "a\nb"), ("👩‍👧 ‏שלום", "👩‍👧 ‏שלום")],
)
def test_keeps_values_as_they_are(value: Any, shown: str) -> None:
    assert render({"text": "<{{a}}>"}, {"a": value}) == {"text": f"<{shown}>"}


@pytest.mark.parametrize("value", ["{{b}}", "{{a}}", "{{ a", r"\1", r"\g<0>", "%s", "{0}"])
def test_never_expands_a_value(value: str) -> None:
    assert render({"text": "{{a}} {{b}}"}, {"a": value, "b": "x"}) == {"text": f"{value} x"}


def test_refuses_a_result_that_is_too_long() -> None:
    with pytest.raises(InvalidContent) as refused:
        render({"text": "{{a}}"}, {"a": "x" * 4097})
    assert set(refused.value.fields) == {"text"}


def test_refuses_a_result_that_is_empty() -> None:
    with pytest.raises(InvalidContent):
        render({"text": "{{a}}"}, {"a": " "})


def test_hands_buttons_to_a_provider() -> None:
    content = {"text": "a", "buttons": [{"kind": "reply", "label": "Sim", "value": "yes"}]}
    assert buttons_of(content) == [Button("reply", "Sim", "yes")]
    assert buttons_of({"text": "a"}) == []


# --- what an author writes --------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["Olá {{nome}}", "{{nome}}, olá", "{ isto é um texto }", "{"])
def test_reads_a_plain_text(source: str) -> None:
    assert parse_template(source) == {"text": source}


def test_reads_json_with_buttons() -> None:
    assert parse_template(json.dumps(RICH)) == RICH


@pytest.mark.parametrize(
    "source",
    [
        '{"text": "a"',
        '{"text": "a", "buttons": [{"kind": "reply"}]}',
        '{"text": "a", "buttons": 5}',
        '{"texto": "a"}',
        '{"text": ["{{a}}"]}',
        "{}",
        '{"text": ' + "[" * 100_000,
    ],
)
def test_refuses_json_that_is_no_template(source: str) -> None:
    with pytest.raises(InvalidContent):
        parse_template(source)


@pytest.mark.parametrize(
    "text", ["Olá {{nome completo}}", "Olá {{nome", "Olá nome}}", "{{é}}", "{{}}", "{{" + "a" * 42 + "}}"]
)
def test_refuses_a_variable_that_nobody_could_fill_in(text: str) -> None:
    with pytest.raises(InvalidContent):
        parse_template(text)


def test_refuses_a_template_that_no_value_makes_short_enough() -> None:
    with pytest.raises(InvalidContent):
        parse_template("x" * 4096 + "{{a}}")


def test_lets_variables_take_more_room_than_their_values() -> None:
    button = {"kind": "reply", "label": "{{a_rather_long_name_for_it}}", "value": "1"}
    assert parse_template(json.dumps({"text": "a", "buttons": [button]}))


def test_tells_two_labels_that_only_differ_in_a_variable_apart() -> None:
    buttons = [{"kind": "reply", "label": f"{{{{{name}}}}}", "value": name} for name in ("a", "b")]
    assert parse_template(json.dumps({"text": "a", "buttons": buttons}))
