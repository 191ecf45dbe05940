"""How a queue looks on a page: ages, times to come, and what an instance sent by the hour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from django.template import Library
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

register = Library()

BAR, GAP, HEIGHT = 2, 1, 24  # of the chart, in its own units
MINUTE, HOUR, DAY = 60, 3600, 86_400


@register.filter
def age(seconds: int | None) -> str:
    """A duration in the one or two units that matter: 42 s, 12 min, 3 h 20 min, 14 h, 3 d."""
    if seconds is None:
        return "–"
    if seconds < MINUTE:
        return f"{seconds} s"
    if seconds < HOUR:
        return f"{seconds // MINUTE} min"
    if seconds < 10 * HOUR:
        return f"{seconds // HOUR} h {seconds % HOUR // MINUTE} min"
    return f"{seconds // HOUR} h" if seconds < 2 * DAY else f"{seconds // DAY} d"


@register.filter
def ahead(at: datetime | None, now: datetime) -> SafeString | str:
    """How far off a moment is: now, 40 s, 3 h 20 min; the moment itself on hovering."""
    if at is None:
        return "–"
    seconds = int((at - now).total_seconds())
    text = age(seconds) if seconds > 0 else _("now")
    return format_html(
        '<span title="{}">{}</span>', date_format(timezone.localtime(at), "DATETIME_FORMAT"), text
    )


@register.filter
def chart(counts: Sequence[int]) -> SafeString:
    """Bars of an hour each, the current one apart; the highest fills the height."""
    peak = max(counts)
    width = len(counts) * (BAR + GAP) - GAP
    return format_html(
        '<svg class="chart" role="img" viewBox="0 0 {} {}" width="{}" height="{}"><title>{}</title>'
        '<path d="{}"/><path class="now" d="{}"/></svg>',
        width,
        HEIGHT,
        width,
        HEIGHT,
        _("Sent by the hour, %(peak)s at most.") % {"peak": peak},
        "".join(_bars(counts[:-1], peak, first=0)),
        "".join(_bars(counts[-1:], peak, first=len(counts) - 1)),
    )


def _bars(counts: Sequence[int], peak: int, *, first: int) -> Iterator[str]:
    for place, count in enumerate(counts, start=first):
        # An hour without any keeps a trace, so that the hours can be counted.
        height = max(round(count / peak * HEIGHT, 1), 1.5 if count else 0.5) if peak else 0.5
        yield f"M{place * (BAR + GAP)} {HEIGHT}v-{height}h{BAR}v{height}z"
