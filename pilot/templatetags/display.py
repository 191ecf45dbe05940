"""How values look on a page: moments, telephone numbers, lists."""

from __future__ import annotations

from datetime import datetime

import phonenumbers
from django.template import Library
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = Library()


@register.filter
def moment(value: datetime | None) -> SafeString | str:
    """A `<time>`: hour, minute and second today, day and minute otherwise; the whole on hovering."""
    if value is None:
        return "–"
    local = timezone.localtime(value)
    shape = "H:i:s" if local.date() == timezone.localdate() else "j M Y, H:i"
    whole = f"{date_format(local, 'DATE_FORMAT')} {local:%H:%M:%S %Z}"
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', value.isoformat(), whole, date_format(local, shape)
    )


@register.filter
def phone(number: str) -> str:
    """An E.164 number with its country's spacing, or as it is when it is none."""
    try:
        parsed = phonenumbers.parse(number)
    except phonenumbers.NumberParseException:
        return number
    return phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.INTERNATIONAL)


@register.filter
def listed(value: object) -> str:
    """A list with commas; anything else as it is."""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
