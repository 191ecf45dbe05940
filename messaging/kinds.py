"""The kinds of content, one model each. Limits are those of Meta's Cloud API reference, in characters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from django.utils.translation import gettext as _
from pydantic import AfterValidator, Field, model_validator

from messaging import numbers
from messaging.fields import (
    Body,
    Caption,
    Content,
    InteractiveBody,
    Label,
    Line,
    Link,
    Media,
    MediaId,
    MessageId,
    Part,
    ShortText,
    Value,
    fault,
    is_web_address,
    limited,
)

MOST_BUTTONS, MOST_SECTIONS, MOST_ROWS, MOST_CONTACTS = 3, 10, 10, 5
# The longest code to copy is a PIX payment code.
VALUE_LIMITS = {"reply": 256, "url": 2000, "call": 20, "copy": 512}


# --- text, with buttons -----------------------------------------------------------------------------------


class Button(Part):
    kind: Literal["reply", "url", "call", "copy"]
    label: Label
    value: Value

    @model_validator(mode="after")
    def _value_fits(self) -> Button:
        limit = VALUE_LIMITS[self.kind]
        if len(self.value) > limit:
            raise fault(_("The value may have at most %(limit)s characters.") % {"limit": limit})
        if self.kind == "url" and not is_web_address(self.value):
            raise fault(_("The value must be a web address: https://…"))
        if self.kind == "call" and not numbers.is_valid(self.value):
            raise fault(_("The value must be a telephone number."))
        return self


class CommentReply(Part):
    """The Instagram comment that is answered: for its author alone, or below it for everybody."""

    id: MessageId
    mode: Literal["private", "public"]


class Text(Content):
    type: Literal["text"] = "text"
    text: Body
    title: Line = ""
    footer: Line = ""
    buttons: list[Button] = []
    comment: CommentReply | None = None
    human_agent: bool = False  # a person wrote it: Instagram then lets it pass for seven days

    @model_validator(mode="after")
    def _buttons_agree(self) -> Text:
        kinds = {button.kind for button in self.buttons}
        labels = {button.label for button in self.buttons}
        if len(self.buttons) > MOST_BUTTONS:
            raise fault(_("At most %(limit)s buttons.") % {"limit": MOST_BUTTONS})
        if "reply" in kinds and len(kinds) > 1:
            raise fault(_("Reply buttons cannot be mixed with other kinds."))
        if len(labels) < len(self.buttons):
            raise fault(_("Every button needs a label of its own."))
        return self


# --- files ------------------------------------------------------------------------------------------------


class Image(Media):
    type: Literal["image"]
    caption: Caption = ""


class Video(Media):
    type: Literal["video"]
    caption: Caption = ""


class Audio(Media):
    """`voice` shows it as a recorded voice message; it must be Ogg with Opus then."""

    type: Literal["audio"]
    voice: bool = False


class Document(Media):
    type: Literal["document"]
    caption: Caption = ""
    filename: ShortText = ""


class Sticker(Media):
    type: Literal["sticker"]


# --- what people choose from ------------------------------------------------------------------------------


class Row(Part):
    id: Annotated[Value, limited(200)]
    title: Annotated[Value, limited(24)]
    description: Annotated[Line, limited(72)] = Field(default="")


class Section(Part):
    title: Annotated[Line, limited(24)] = ""
    rows: list[Row]


class List(Content):
    type: Literal["list"]
    text: InteractiveBody
    title: Line = ""
    footer: Line = ""
    button: Label
    sections: list[Section]

    @model_validator(mode="after")
    def _sections_agree(self) -> List:
        rows = [row.id for section in self.sections for row in section.rows]
        if not rows or not all(section.rows for section in self.sections):
            raise fault(_("Every section needs a row."))
        if len(self.sections) > MOST_SECTIONS or len(rows) > MOST_ROWS:
            raise fault(_("At most %(limit)s rows in all.") % {"limit": MOST_ROWS})
        if len(self.sections) > 1 and not all(section.title for section in self.sections):
            raise fault(_("Several sections need a title each."))
        if len(set(rows)) < len(rows):
            raise fault(_("Every row needs an id of its own."))
        return self


class Flow(Content):
    """Opens a WhatsApp Flow. `screen` is the one it starts with, `data` what that one is given."""

    type: Literal["flow"]
    text: InteractiveBody
    title: Line = ""
    footer: Line = ""
    button: Annotated[Value, limited(30)]
    flow_id: MediaId
    flow_token: ShortText = ""
    screen: ShortText = ""
    data: dict[str, Any] = {}
    mode: Literal["draft", "published"] = "published"

    @model_validator(mode="after")
    def _data_has_a_screen(self) -> Flow:
        if self.data and not self.screen:
            raise fault(_("Data needs a screen that takes it."))
        return self


class LocationRequest(Content):
    type: Literal["location_request"]
    text: InteractiveBody


# --- places, people, reactions ----------------------------------------------------------------------------


class Location(Content):
    type: Literal["location"]
    latitude: Annotated[float, Field(ge=-90, le=90)]
    longitude: Annotated[float, Field(ge=-180, le=180)]
    name: ShortText = ""
    address: ShortText = ""


class Name(Part):
    formatted_name: Annotated[Value, limited(256)]
    first_name: ShortText = ""
    last_name: ShortText = ""
    middle_name: ShortText = ""
    prefix: ShortText = ""
    suffix: ShortText = ""


class Phone(Part):
    phone: Annotated[Value, limited(40)]
    type: ShortText = ""
    wa_id: ShortText = ""


class Email(Part):
    email: Annotated[Value, limited(256)]
    type: ShortText = ""


class Url(Part):
    url: Link
    type: ShortText = ""


class Organization(Part):
    company: ShortText = ""
    department: ShortText = ""
    title: ShortText = ""


class Person(Part):
    name: Name
    phones: list[Phone] = []
    emails: list[Email] = []
    urls: list[Url] = []
    org: Organization | None = None


class Contacts(Content):
    type: Literal["contacts"]
    contacts: Annotated[list[Person], Field(min_length=1, max_length=MOST_CONTACTS)]


class Reaction(Part):
    """An emoji on a message of the other side; an empty one takes it off again."""

    type: Literal["reaction"]
    message_id: MessageId
    emoji: Annotated[str, limited(40)]


# --- templates of WhatsApp --------------------------------------------------------------------------------

# The field in which a parameter of each type has its value.
PARAMETER_FIELDS: Mapping[str, str] = {
    "text": "text",
    "currency": "currency",
    "date_time": "date_time",
    "image": "image",
    "video": "video",
    "document": "document",
    "location": "location",
    "payload": "payload",
    "coupon_code": "coupon_code",
    "action": "action",
}
TEMPLATE_NAME = re.compile(r"[a-z0-9_]{1,512}")
LANGUAGE = re.compile(r"[a-z]{2,3}(_[A-Za-z]{2,4})?")


def _matching(pattern: re.Pattern[str], sentence: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise fault(_(sentence))
        return text

    return AfterValidator(check)


class Currency(Part):
    fallback_value: ShortText
    code: Annotated[str, limited(3)]
    amount_1000: int


class DateTime(Part):
    fallback_value: ShortText


class TemplateFile(Part):
    """A file as Meta's templates name it: by `id` or by `link`."""

    id: MediaId = ""
    link: Link = ""
    filename: ShortText = ""

    @model_validator(mode="after")
    def _one_source(self) -> TemplateFile:
        if bool(self.link) == bool(self.id):
            raise fault(_("Give either a link or an id."))
        return self


class Place(Part):
    latitude: float
    longitude: float
    name: ShortText = ""
    address: ShortText = ""


class Parameter(Part):
    type: Literal[
        "text",
        "currency",
        "date_time",
        "image",
        "video",
        "document",
        "location",
        "payload",
        "coupon_code",
        "action",
    ]
    parameter_name: ShortText = ""
    text: Body | None = None
    currency: Currency | None = None
    date_time: DateTime | None = None
    image: TemplateFile | None = None
    video: TemplateFile | None = None
    document: TemplateFile | None = None
    location: Place | None = None
    payload: Annotated[Value, limited(256)] | None = None
    coupon_code: Annotated[Value, limited(20)] | None = None
    action: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _only_its_own_value(self) -> Parameter:
        given = {name for name in PARAMETER_FIELDS.values() if getattr(self, name) is not None}
        if given != {PARAMETER_FIELDS[self.type]}:
            name = PARAMETER_FIELDS[self.type]
            raise fault(_("Give its value in “%(name)s”, and no other.") % {"name": name})
        return self


class Component(Part):
    """The parameters of one part of the template. A button says which by `index`, and how by `sub_type`."""

    type: Literal["header", "body", "button"]
    sub_type: Literal["quick_reply", "url", "flow", "copy_code", "catalog"] | None = None
    index: Annotated[str, limited(2)] = ""
    parameters: list[Parameter] = []

    @model_validator(mode="after")
    def _button_is_named(self) -> Component:
        parts = (self.sub_type is not None, self.index.isdecimal())
        if set(parts) != {self.type == "button"}:
            raise fault(_('A button, and nothing else, needs a sub_type and an index such as "0".'))
        return self


class Template(Content):
    """A template that Meta approved, in one language; `components` carry the values, in Meta's own shape."""

    type: Literal["template"]
    name: Annotated[str, _matching(TEMPLATE_NAME, "Small letters, digits and underscores only.")]
    language: Annotated[str, _matching(LANGUAGE, "Must be a language code such as pt_BR.")]
    components: list[Component] = []


KINDS: Mapping[str, type[Part]] = {
    "text": Text,
    "image": Image,
    "video": Video,
    "audio": Audio,
    "document": Document,
    "sticker": Sticker,
    "list": List,
    "flow": Flow,
    "location_request": LocationRequest,
    "location": Location,
    "contacts": Contacts,
    "reaction": Reaction,
    "template": Template,
}
