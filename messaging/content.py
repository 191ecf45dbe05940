"""What one message may consist of: WhatsApp's limits, checked before anything is accepted.

Content is {"text", "title"?, "footer"?, "buttons"?: [{"kind": "reply|url|call|copy", "label", "value"}]}, all strings.
The limits are those of Meta's Cloud API reference (text and interactive messages), in characters.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from django.utils.translation import gettext as _
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from messaging import numbers
from pilot.errors import PilotError

TEXT_LIMIT, LINE_LIMIT, LABEL_LIMIT = 4096, 60, 20  # a line is a title or a footer
MOST_BUTTONS = 3
BUTTON_KINDS = ["reply", "url", "call", "copy"]
# The longest code to copy is a PIX payment code.
VALUE_LIMITS = {"reply": 256, "url": 2000, "call": 20, "copy": 512}
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")  # all but tab and line breaks


class InvalidContent(PilotError):
    """A content that cannot be sent. `fields` names what is wrong with which part."""

    code = "invalid_content"


def _fault(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("pilot", "{sentence}", {"sentence": sentence})


def _printable(text: str) -> str:
    if CONTROL.search(text):
        raise _fault(_("Must not contain control characters."))
    return text


def _visible(text: str) -> str:
    if not text.strip():
        raise _fault(_("Must not be empty."))
    return _printable(text)


def _one_line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise _fault(_("Must be one line."))
    return text


Body = Annotated[str, StringConstraints(max_length=TEXT_LIMIT), AfterValidator(_visible)]
Line = Annotated[
    str, StringConstraints(max_length=LINE_LIMIT), AfterValidator(_printable), AfterValidator(_one_line)
]
Label = Annotated[
    str, StringConstraints(max_length=LABEL_LIMIT), AfterValidator(_visible), AfterValidator(_one_line)
]
Value = Annotated[str, AfterValidator(_visible), AfterValidator(_one_line)]


class _Button(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Literal["reply", "url", "call", "copy"]
    label: Label
    value: Value

    @model_validator(mode="after")
    def _value_fits(self) -> _Button:
        limit = VALUE_LIMITS[self.kind]
        if len(self.value) > limit:
            raise _fault(_("The value may have at most %(limit)s characters.") % {"limit": limit})
        if self.kind == "url" and not _is_web_address(self.value):
            raise _fault(_("The value must be a web address: https://…"))
        if self.kind == "call" and not numbers.is_valid(self.value):
            raise _fault(_("The value must be a telephone number."))
        return self


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    text: Body
    title: Line = ""
    footer: Line = ""
    buttons: list[_Button] = []

    @model_validator(mode="after")
    def _buttons_agree(self) -> _Content:
        kinds = {button.kind for button in self.buttons}
        labels = {button.label for button in self.buttons}
        if len(self.buttons) > MOST_BUTTONS:
            raise _fault(_("At most %(limit)s buttons.") % {"limit": MOST_BUTTONS})
        if "reply" in kinds and len(kinds) > 1:
            raise _fault(_("Reply buttons cannot be mixed with other kinds."))
        if len(labels) < len(self.buttons):
            raise _fault(_("Every button needs a label of its own."))
        return self


def validate_content(content: Any) -> None:
    """Raises InvalidContent unless this can be sent as it stands."""
    try:
        _Content.model_validate(content)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        raise InvalidContent(_("The content cannot be sent."), fields=_by_field(faults)) from None


def _by_field(faults: list[ErrorDetails]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for fault in faults:
        *path, last = fault["loc"] or ("buttons",)
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
    }
    return ours[fault["type"]] % fault.get("ctx", {}) if fault["type"] in ours else fault["msg"]


def _is_web_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and " " not in value
