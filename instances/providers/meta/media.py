"""What WhatsApp takes as a file: types and sizes, in bytes (Meta's media reference)."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext as _

KB, MB = 1024, 1024 * 1024
LIMITS: Mapping[str, int] = {
    "image/jpeg": 5 * MB,
    "image/png": 5 * MB,
    "video/mp4": 16 * MB,
    "video/3gpp": 16 * MB,
    "audio/aac": 16 * MB,
    "audio/amr": 16 * MB,
    "audio/mpeg": 16 * MB,
    "audio/mp4": 16 * MB,
    "audio/ogg": 16 * MB,
    "image/webp": 500 * KB,
}
DOCUMENT_LIMIT = 100 * MB
# Of these kinds nothing else is taken; any other type goes as a document.
CLOSED_KINDS = ("image/", "video/", "audio/")


def fault(*, mime_type: str, size: int) -> str:
    """Why WhatsApp would not take a file; empty for one that it takes."""
    kind = mime_type.partition(";")[0].strip()
    if kind not in LIMITS and kind.startswith(CLOSED_KINDS):
        allowed = ", ".join(name for name in LIMITS if name.startswith(kind.partition("/")[0]))
        return _("WhatsApp takes only these types: %(allowed)s.") % {"allowed": allowed}
    if size > LIMITS.get(kind, DOCUMENT_LIMIT):
        return _("A file of this type may have at most %(most)s kB.") % {
            "most": LIMITS.get(kind, DOCUMENT_LIMIT) // KB
        }
    return "" if size else _("The file is empty.")
