"""Telephone numbers."""

from __future__ import annotations

import pytest

from messaging import numbers

WRITTEN = {
    "+5511999990000": "+5511999990000",
    "5511999990000": "+5511999990000",
    "(11) 99999-0000": "+5511999990000",
    " 011 99999-0000 ": "+5511999990000",
    "55 9 9999-0000 ".replace(" ", ""): "+5555999990000",  # area code 55, not country code
    "+55 11 3333-4444": "+551133334444",
    "+554788887777": "+5547988887777",  # as WhatsApp knows it, without the ninth digit
    "4788887777": "+5547988887777",
    "+5511951234567": "+5511951234567",  # a newer range, which never was without it
    "+1 415 555 2671": "+14155552671",
    "+52 55 1234 5678": "+525512345678",
    "+52 1 55 1234 5678": "+525512345678",  # as WhatsApp writes it
    "+351 912 345 678": "+351912345678",
}
NOT_NUMBERS = [
    "",
    "+",
    "12345",
    "999990000",  # no area code
    "14155552671",  # foreign, but without +
    "+5511899990000",
    "+55119999900001",
    "1199999ABCD",
    "+5511999990000;ext=1",
    "5511999990000@s.whatsapp.net",
    "١١٩٩٩٩٩٠٠٠٠",
    "+5511999990000\x00",
    "+" + "9" * 5000,
]


@pytest.mark.parametrize(("written", "number"), WRITTEN.items())
def test_understands_what_people_write(written: str, number: str) -> None:
    assert numbers.normalise(written) == number
    assert numbers.is_valid(written)


@pytest.mark.parametrize("written", NOT_NUMBERS)
def test_refuses_what_cannot_be_dialled(written: str) -> None:
    assert not numbers.is_valid(written)
    with pytest.raises(numbers.InvalidNumber) as refused:
        numbers.normalise(written)
    assert list(refused.value.fields) == ["to"]


def test_names_the_field_it_was_given() -> None:
    with pytest.raises(numbers.InvalidNumber) as refused:
        numbers.normalise("?", field="number")
    assert list(refused.value.fields) == ["number"]


def test_takes_both_forms_of_a_brazilian_mobile_number_for_one_telephone() -> None:
    assert numbers.variants("+554788887777") == ("+5547988887777", "+554788887777")
    assert numbers.compare_key("+5547988887777") == numbers.compare_key("+554788887777")


def test_takes_both_forms_of_a_mexican_number_for_one_telephone() -> None:
    for number in ("+525512345678", "+5215512345678"):
        assert numbers.variants(number) == ("+525512345678", "+5215512345678")
        assert numbers.compare_key(number) == "+525512345678"


@pytest.mark.parametrize("number", ["+551133334444", "+5511951234567", "+14155552671", "+5491155551234"])
def test_knows_other_numbers_in_one_form_only(number: str) -> None:
    assert numbers.variants(number) == (number,)


def test_keeps_different_telephones_apart() -> None:
    keys = {numbers.compare_key(f"+5511{rest}") for rest in ("988887777", "978887777", "33334444")}
    assert len(keys) == 3
