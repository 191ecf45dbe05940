"""The codes by which a person connects an instance: one to scan, one to type."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import segno
from django.utils.safestring import SafeString, mark_safe

from instances.models import Instance

HALF = 4  # WhatsApp shows the code to type in two halves


@dataclass(frozen=True, slots=True)
class Codes:
    """What to show: an SVG element, the code to type (or empty), and for how many seconds they are good."""

    qr: SafeString
    typed: str
    seconds_left: int


def codes(instance: Instance, *, now: datetime) -> Codes | None:
    """The instance's codes, or None while it has none that is still good."""
    if not instance.qr_code or instance.qr_expires_at is None or instance.qr_expires_at <= now:
        return None
    seconds = round((instance.qr_expires_at - now).total_seconds())
    typed = instance.pairing_code
    halves = f"{typed[:HALF]}-{typed[HALF:]}" if typed else ""
    return Codes(qr=_draw(instance.qr_code), typed=halves, seconds_left=seconds)


def _draw(payload: str) -> SafeString:
    code = segno.make_qr(payload, error="l")
    return mark_safe(code.svg_inline(border=4, omitsize=True, svgclass="qr", lineclass=None))
