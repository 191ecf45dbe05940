"""Phone numbers: what people write becomes E.164, and Brazil's ninth digit never makes two people of one."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import phonenumbers
from django.utils.translation import gettext as _

from pilot.errors import PilotError

HOME = "BR"  # the country of a number written without one
WRITTEN = re.compile(r"\+?[0-9\s().-]{6,30}", re.ASCII)
# Mobile numbers of Brazil are DDD + 9 + eight digits; WhatsApp knows many of them without the 9.
BRAZILIAN_MOBILE = re.compile(r"\+55(\d\d)9?([6-9]\d{7})")
# Mexico gave up the 1 of its mobile numbers in 2019; WhatsApp still writes it.
MEXICAN = re.compile(r"\+521?(\d{10})")
ARGENTINE_MOBILE = re.compile(r"\+549(\d{10})")

KINDS = {
    phonenumbers.PhoneNumberType.MOBILE: "mobile",
    phonenumbers.PhoneNumberType.FIXED_LINE: "fixed",
    phonenumbers.PhoneNumberType.FIXED_LINE_OR_MOBILE: "mobile_or_fixed",
}


class InvalidNumber(PilotError):
    """Not a telephone number that can be dialled."""

    code = "invalid_number"


class Description(NamedTuple):
    """What the numbering plan says: the E.164 form, the ISO 3166 country ("" when it has none) and the kind."""

    number: str
    country: str
    kind: str


def normalise(raw: str, *, field: str = "to") -> str:
    """The E.164 form (`+5511999990000`) of a number as people write it, Brazilian unless it says otherwise.

    A Brazilian mobile number without its ninth digit gets it. Raises InvalidNumber, naming `field`.
    """
    number = _understood(raw.strip())
    if not number:
        raise InvalidNumber(
            _("This is not a valid telephone number."),
            fields={field: [_("Write it as +5511999990000, or with area code when it is Brazilian.")]},
        )
    return number


def describe(raw: str) -> Description | None:
    """What there is to say of a number as people write it; None when normalise() would not take it."""
    number = _understood(raw.strip())
    if not number:
        return None
    parsed = phonenumbers.parse(number)
    country = phonenumbers.region_code_for_number(parsed) or ""
    kind = KINDS.get(phonenumbers.number_type(parsed), "other")
    return Description(number, country if len(country) == 2 else "", kind)


def variants(number: str) -> tuple[str, ...]:
    """The E.164 forms under which the same telephone may be on record, the valid one first.

    That is with and without Brazil's ninth digit, or the 1 after Mexico's code.
    """
    if mobile := BRAZILIAN_MOBILE.fullmatch(number):
        area, rest = mobile.groups()
        return f"+55{area}9{rest}", f"+55{area}{rest}"
    if mexican := MEXICAN.fullmatch(number):
        return f"+52{mexican[1]}", f"+521{mexican[1]}"
    return (number,)


def compare_key(number: str) -> str:
    """Equal for two E.164 numbers of the same telephone, with or without what only mobile numbers carry.

    That is Brazil's ninth digit, the 1 after Mexico's code, and the 9 after Argentina's.
    """
    argentine = ARGENTINE_MOBILE.fullmatch(number)
    return f"+54{argentine[1]}" if argentine else min(variants(number), key=len)


def is_valid(raw: str) -> bool:
    """Whether normalise() would take it."""
    return bool(_understood(raw.strip()))


@lru_cache(
    maxsize=4096
)  # people who get one message get more, and parsing is half of what accepting one costs
def _understood(written: str) -> str:
    if not WRITTEN.fullmatch(written):
        return ""
    try:
        parsed = phonenumbers.parse(written, HOME)
    except phonenumbers.NumberParseException:
        return ""
    plain = phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164)
    number = variants(plain)[0]
    if number != plain:  # parsing costs more than all else here
        parsed = phonenumbers.parse(number)
    return number if phonenumbers.is_valid_number(parsed) else ""
