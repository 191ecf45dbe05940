"""The code that a person scans to connect an instance, drawn."""

from __future__ import annotations

from datetime import datetime

import segno
from django.utils.safestring import SafeString, mark_safe

from instances.models import Instance


def qr_svg(instance: Instance, *, now: datetime) -> SafeString | None:
    """The instance's QR code as an SVG element, or None when it has none that is still valid."""
    if not instance.qr_code or seconds_left(instance, now=now) == 0:
        return None
    code = segno.make_qr(instance.qr_code, error="l")
    return mark_safe(code.svg_inline(border=4, omitsize=True, svgclass="qr", lineclass=None))


def seconds_left(instance: Instance, *, now: datetime) -> int:
    """How long the code can still be scanned."""
    if instance.qr_expires_at is None:
        return 0
    return max(0, round((instance.qr_expires_at - now).total_seconds()))
