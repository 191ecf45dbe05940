"""The parts of a content that several kinds share: texts, addresses, media; each with its limit and its fault."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from django.utils.translation import gettext as _
from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

TEXT_LIMIT, LINE_LIMIT, LABEL_LIMIT = 4096, 60, 20  # a line is a title or a footer
CAPTION_LIMIT, INTERACTIVE_LIMIT, LINK_LIMIT = 1024, 1024, 2000
BUTTON_KINDS = ["reply", "url", "call", "copy"]
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")  # all but tab and line breaks
PROVIDER_ID = re.compile(r"[\x21-\x7e]{1,255}")
DIGITS = re.compile(r"[0-9]{1,40}")


def fault(sentence: str) -> PydanticCustomError:
    """What a validator raises; the sentence is what a tenant reads."""
    return PydanticCustomError("pilot", "{sentence}", {"sentence": sentence})


def _printable(text: str) -> str:
    if CONTROL.search(text):
        raise fault(_("Must not contain control characters."))
    return text


def _visible(text: str) -> str:
    if not text.strip():
        raise fault(_("Must not be empty."))
    return _printable(text)


def _one_line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise fault(_("Must be one line."))
    return text


def _provider_id(text: str) -> str:
    if not PROVIDER_ID.fullmatch(text):
        raise fault(_("Must be an id of at most 255 visible characters."))
    return text


def _digits(text: str) -> str:
    if not DIGITS.fullmatch(text):
        raise fault(_("Must be an id of digits."))
    return text


def _web_address(text: str) -> str:
    if not is_web_address(text):
        raise fault(_("Must be a web address: https://…"))
    return text


def is_web_address(value: str) -> bool:
    """Whether a browser could open it: http or https, with a host."""
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and " " not in value


def limited(most: int) -> StringConstraints:
    """At most so many characters."""
    return StringConstraints(max_length=most)


Body = Annotated[str, limited(TEXT_LIMIT), AfterValidator(_visible)]
InteractiveBody = Annotated[str, limited(INTERACTIVE_LIMIT), AfterValidator(_visible)]
Caption = Annotated[str, limited(CAPTION_LIMIT), AfterValidator(_printable)]
Line = Annotated[str, limited(LINE_LIMIT), AfterValidator(_printable), AfterValidator(_one_line)]
Label = Annotated[str, limited(LABEL_LIMIT), AfterValidator(_visible), AfterValidator(_one_line)]
Value = Annotated[str, AfterValidator(_visible), AfterValidator(_one_line)]
ShortText = Annotated[str, limited(256), AfterValidator(_printable), AfterValidator(_one_line)]
Link = Annotated[str, limited(LINK_LIMIT), AfterValidator(_web_address)]
MediaId = Annotated[str, AfterValidator(_digits)]
MessageId = Annotated[str, AfterValidator(_provider_id)]


class Part(BaseModel):
    """Nothing is converted, and nothing unknown is let through."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Content(Part):
    """What every kind may carry: the message that it answers, by the provider's id."""

    reply_to: MessageId = ""


class Media(Content):
    """A file by its address or by the id that it was uploaded under."""

    link: Link = ""
    media_id: MediaId = ""

    @model_validator(mode="after")
    def _one_source(self) -> Media:
        if bool(self.link) == bool(self.media_id):
            raise fault(_("Give either a link or a media_id."))
        return self
