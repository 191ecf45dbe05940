"""What one message may consist of: the limits of WhatsApp, checked before anything is accepted.

Content is a JSON object whose `type` names its kind (messaging/kinds.py). Without one it is a text:
{"text", "title"?, "footer"?, "buttons"?: [{"kind": "reply|url|call|copy", "label", "value"}]}, all strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from messaging.kinds import KINDS
from pilot.errors import PilotError

TEXT = "text"
# Where each kind has the words that stand for it in a list.
WORDS: Mapping[str, tuple[str, ...]] = {
    "document": ("caption", "filename"),
    "location": ("name", "address"),
    "reaction": ("emoji",),
    "template": ("name",),
}


class InvalidContent(PilotError):
    """A content that cannot be sent. `fields` names what is wrong with which part."""

    code = "invalid_content"


def kind_of(content: Mapping[str, Any]) -> str:
    """The kind of a valid content: a key of KINDS."""
    return str(content.get("type", TEXT))


def summary(content: Mapping[str, Any]) -> str:
    """The text that a person reads of it first; empty for a kind that has none."""
    names = WORDS.get(kind_of(content), ("text", "caption"))
    return next((str(content[name]) for name in names if content.get(name)), "")


def validate_content(content: Any) -> None:
    """Raises InvalidContent unless this can be sent as it stands."""
    kind = content.get("type", TEXT) if isinstance(content, dict) else TEXT
    model = KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        expected = _("Must be one of: %(expected)s.") % {"expected": ", ".join(KINDS)}
        raise _invalid({"type": [expected]})
    try:
        model.model_validate(content)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        raise _invalid(_by_field(faults, whole=WHOLE.get(kind, "content"))) from None


# The part to which a fault of the whole is put down.
WHOLE: Mapping[str, str] = {
    "text": "buttons",
    "list": "sections",
    "flow": "data",
    **dict.fromkeys(("image", "video", "audio", "document", "sticker"), "link"),
}


def _invalid(fields: dict[str, Any]) -> InvalidContent:
    return InvalidContent(_("The content cannot be sent."), fields=fields)


def _by_field(faults: list[ErrorDetails], *, whole: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for fault in faults:
        *path, last = fault["loc"] or (whole,)
        node = fields
        for step in path:
            node = node.setdefault(str(step), {})
        node.setdefault(str(last), []).append(_sentence(fault))
    return fields


def _sentence(fault: ErrorDetails) -> str:
    ours = {
        "missing": _("This field is required."),
        "extra_forbidden": _("This field is not known."),
        "string_type": _("Must be a text."),
        "string_too_long": _("At most %(max_length)s characters."),
        "literal_error": _("Must be one of: %(expected)s."),
        "list_type": _("Must be a list."),
        "model_type": _("Must be an object."),
        "dict_type": _("Must be an object."),
        "float_type": _("Must be a number."),
        "int_type": _("Must be a whole number."),
        "bool_type": _("Must be true or false."),
        "greater_than_equal": _("Must be at least %(ge)s."),
        "less_than_equal": _("Must be at most %(le)s."),
        "too_short": _("At least %(min_length)s."),
        "too_long": _("At most %(max_length)s."),
    }
    return ours[fault["type"]] % fault.get("ctx", {}) if fault["type"] in ours else fault["msg"]
