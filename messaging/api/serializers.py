"""The shapes of the message API: what a request may carry, and what an answer shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from drf_spectacular.utils import OpenApiExample, extend_schema_field, extend_schema_serializer
from rest_framework import serializers

from messaging import addresses
from messaging.content import InvalidContent, validate_content
from messaging.fields import BUTTON_KINDS, LABEL_LIMIT, LINE_LIMIT, TEXT_LIMIT
from messaging.forecasting import Forecast
from messaging.kinds import KINDS
from messaging.models import Category, FailureCode, Message, Status
from messaging.waiting import explain
from pilot.api import ErrorBodySerializer, InstantField, PageFilter, StrictSerializer, instant

OWN_CATEGORIES = [
    (category.value, category.label) for category in (Category.UTILITY, Category.MARKETING, Category.OTP)
]
OWN_CONTENT = ("text", "title", "footer", "buttons")
MOST_METADATA = 20
LONGEST_NAME = 40
MOST_AT_ONCE = 1000


class ButtonSerializer(StrictSerializer):
    kind = serializers.ChoiceField(BUTTON_KINDS, help_text="Reply buttons cannot be mixed with other kinds.")
    label = serializers.CharField(  # type: ignore[assignment]
        max_length=LABEL_LIMIT, trim_whitespace=False, help_text="What the button shows."
    )
    value = serializers.CharField(
        trim_whitespace=False,
        help_text="The id that a reply brings back, the web address, the number to call or the code to copy.",
    )


@extend_schema_field(
    {
        "type": "object",
        "properties": {"type": {"type": "string", "enum": list(KINDS)}},
        "required": ["type"],
        "additionalProperties": True,
    }
)
class ContentField(serializers.JSONField):
    """A content of any kind (docs/content.md); what is wrong with it is named part by part."""

    def to_internal_value(self, data: Any) -> Any:
        content = super().to_internal_value(data)
        try:
            validate_content(content)
        except InvalidContent as error:
            raise serializers.ValidationError(error.fields) from None
        return content


@extend_schema_field(
    {"type": "object", "additionalProperties": {"oneOf": [{"type": "string"}, {"type": "number"}]}}
)
class VariablesField(serializers.DictField):
    """Names to texts or numbers; messaging/rendering.py says what is wrong with which."""


class MetadataField(serializers.DictField):
    """A small map of texts that comes back with the message."""

    child = serializers.CharField(max_length=500, allow_blank=True, trim_whitespace=False)
    default_error_messages = {
        "too_many": gettext_lazy("At most {most} entries."),
        "long_name": gettext_lazy("Names may have at most {most} characters."),
    }

    def to_internal_value(self, data: Any) -> dict[str, str]:
        metadata = super().to_internal_value(data)
        if len(metadata) > MOST_METADATA:
            self.fail("too_many", most=MOST_METADATA)
        if any(len(name) > LONGEST_NAME for name in metadata):
            self.fail("long_name", most=LONGEST_NAME)
        return metadata


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "From a template",
            value={
                "to": "+5511999990000",
                "template": "pedido_enviado",
                "variables": {"nome": "Ana", "pedido": 1042},
                "metadata": {"order": "1042"},
            },
            request_only=True,
        ),
        OpenApiExample(
            "Own text with buttons",
            value={
                "to": "(11) 99999-0000",
                "text": "Seu pedido chegou bem?",
                "buttons": [
                    {"kind": "reply", "label": "Sim", "value": "yes"},
                    {"kind": "reply", "label": "Não", "value": "no"},
                ],
                "instance": "loja-centro",
                "urgent": True,
            },
            request_only=True,
        ),
    ]
)
class SubmissionSerializer(StrictSerializer):
    """A message to send: a `template` with its `variables`, a `text` of your own, or a `content` of another kind."""

    to = serializers.CharField(
        max_length=addresses.LONGEST,
        help_text="The recipient's number: `+5511999990000`, or with area code when it is Brazilian. "
        "On Instagram, and on WhatsApp for people without a number, the provider's id of the person.",
    )
    template = serializers.CharField(
        required=False, max_length=80, help_text="The name of an active template of the project."
    )
    variables = VariablesField(
        required=False, help_text="A value for each of the template's variables, and for nothing else."
    )
    text = serializers.CharField(
        required=False,
        max_length=TEXT_LIMIT,
        trim_whitespace=False,
        help_text="Sent as it is: nothing in it is replaced.",
    )
    title = serializers.CharField(
        required=False, max_length=LINE_LIMIT, trim_whitespace=False, help_text="A line above `text`."
    )
    footer = serializers.CharField(
        required=False, max_length=LINE_LIMIT, trim_whitespace=False, help_text="A line below `text`."
    )
    buttons = ButtonSerializer(many=True, required=False, help_text="Up to three buttons under `text`.")
    content = ContentField(
        required=False,
        help_text="Instead of `text`: an image, a list, a location and so on, by its `type`. "
        "Which kinds an instance can send depends on its provider.",
    )
    category = serializers.ChoiceField(
        OWN_CATEGORIES,
        required=False,
        help_text="What `text` is for; decides how long it may wait. `utility` unless given.",
    )
    instance = serializers.CharField(
        required=False,
        max_length=60,
        help_text="The name of the instance to send from. The project's default unless given.",
    )
    urgent = serializers.BooleanField(
        default=False, help_text="Goes ahead of what is not urgent on the same instance."
    )
    scheduled_at = InstantField(
        required=False, help_text="Not sent before this moment; its time to be delivered counts from then."
    )
    deliver_until = InstantField(
        required=False,
        help_text="Not sent after this moment. Can only shorten the time that the category allows.",
    )
    skip_opt_in_validation = serializers.BooleanField(
        default=False,
        help_text="Sends without a recorded opt-in; needs the scope `messages:skip_opt_in`. "
        "Never reaches someone who opted out.",
    )
    refuse_if_late = serializers.BooleanField(
        default=False,
        help_text="Refuses the message with the code `would_be_late` instead of accepting one that could not be "
        "sent before its deadline.",
    )
    metadata = MetadataField(
        required=False,
        help_text=f"Up to {MOST_METADATA} texts of yours, kept with the message and given back with it.",
    )
    reference = serializers.CharField(
        required=False,
        max_length=120,
        help_text="Your own name for the message, such as an order's number. Need not be unique.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs.keys() & {"template", "text", "content"}:
            raise serializers.ValidationError({"text": [_("Give a template or a text.")]})
        stray = _stray_fields(attrs)
        if stray:
            raise serializers.ValidationError(stray)
        return attrs


def _stray_fields(attrs: Mapping[str, Any]) -> dict[str, list[str]]:
    if "template" in attrs:
        fault = _("Cannot be combined with a template.")
        return {name: [fault] for name in (*OWN_CONTENT, "content", "category") if name in attrs}
    stray = {"variables": [_("Only a template has variables.")]} if "variables" in attrs else {}
    if "content" in attrs:
        fault = _("Cannot be combined with a content.")
        stray |= {name: [fault] for name in OWN_CONTENT if name in attrs}
    return stray


class FailureSerializer(serializers.Serializer[Any]):
    code = serializers.ChoiceField(FailureCode.choices, help_text="From a closed list.")
    message = serializers.CharField(help_text="The same as a sentence.")
    detail = serializers.CharField(help_text="What the provider said, where it said something.")


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "Waiting for its turn",
            value={
                "id": "01a228e8-b0e0-76d8-8e58-6f34379b5939",
                "status": "queued",
                "to": "+5511999990000",
                "instance": "loja-centro",
                "category": "utility",
                "template": "pedido_enviado",
                "urgent": False,
                "environment": "live",
                "deliver_until": "2026-11-29T13:00:00.000000Z",
                "created_at": "2026-11-29T12:00:00.000000Z",
                "submitted_at": None,
                "sent_at": None,
                "delivered_at": None,
                "read_at": None,
                "failed_at": None,
                "cancelled_at": None,
                "failure": None,
                "attempts": 0,
                "provider_message_id": None,
                "scheduled_at": None,
                "reference": "order-1042",
                "metadata": {"order": "1042"},
                "position": 3,
                "expected_at": "2026-11-29T12:01:16.000000Z",
                "why": "Waiting for its turn: the instance sends one message every 30–46 s.",
            },
            response_only=True,
        )
    ]
)
class MessageSerializer(serializers.Serializer[Any]):
    """A message and what became of it. Times are null until they happen."""

    id = serializers.CharField(help_text="The message's id.")
    status = serializers.ChoiceField(Status.choices, help_text="Where it stands.")
    to = serializers.CharField(help_text="The recipient's number in E.164.")
    instance = serializers.CharField(source="instance.name", help_text="The instance it is sent from.")
    category = serializers.ChoiceField(Category.choices, help_text="What it is for.")
    template = serializers.SerializerMethodField(
        help_text="The template's name; null for a text of your own."
    )
    urgent = serializers.BooleanField(help_text="Whether it goes ahead of others.")
    environment = serializers.CharField(help_text="`live` or `test`, as the key that sent it.")
    scheduled_at = InstantField(
        allow_null=True, help_text="It is not sent before this moment; null when it was due at once."
    )
    deliver_until = InstantField(help_text="It is not sent after this moment.")
    created_at = InstantField(help_text="When it was accepted.")
    submitted_at = InstantField(allow_null=True, help_text="When the provider took it over.")
    sent_at = InstantField(allow_null=True, help_text="When WhatsApp acknowledged it.")
    delivered_at = InstantField(allow_null=True, help_text="When it reached the telephone.")
    read_at = InstantField(
        allow_null=True, help_text="When it was read, where the recipient lets that be known."
    )
    failed_at = InstantField(allow_null=True, help_text="When it failed for good.")
    cancelled_at = InstantField(allow_null=True, help_text="When it was called back before it was sent.")
    failure = serializers.SerializerMethodField(help_text="Why it failed; null unless it did.")
    attempts = serializers.IntegerField(help_text="How often it was handed to the provider.")
    provider_message_id = serializers.CharField(allow_null=True, help_text="Its id at the provider.")
    reference = serializers.CharField(help_text="Your own name for it; empty when you gave none.")
    metadata = serializers.DictField(child=serializers.CharField(), help_text="What you sent along.")
    position = serializers.SerializerMethodField(
        help_text="Its place in the instance's queue, 1 is next; null in lists and once it is not queued."
    )
    expected_at = InstantField(
        allow_null=True,
        help_text="When it should go out; null while nobody can know. In lists, as forecast when it was accepted.",
    )
    why = serializers.SerializerMethodField(
        help_text="One sentence on why it has not gone out yet; null when it has, or never will."
    )

    def get_template(self, message: Message) -> str | None:
        return message.template_version.template.name if message.template_version else None

    @extend_schema_field(FailureSerializer(allow_null=True))
    def get_failure(self, message: Message) -> dict[str, str] | None:
        if not message.failure_code:
            return None
        sentence = FailureCode(message.failure_code).label
        return {"code": message.failure_code, "message": str(sentence), "detail": message.failure_detail}

    def get_position(self, message: Message) -> int | None:
        return None  # only a forecast knows it, see shown()

    def get_why(self, message: Message) -> str | None:
        instance = message.instance
        return explain(message, instance=instance, lane=instance.lane, now=timezone.now()) or None


class MessageFilter(PageFilter):
    """Which messages, newest first."""

    status = serializers.ChoiceField(Status.choices, required=False, help_text="Only those in this state.")
    template = serializers.CharField(required=False, help_text="Only those of this template.", max_length=80)
    instance = serializers.CharField(required=False, help_text="Only those of this instance.", max_length=60)
    to = serializers.CharField(
        required=False, help_text="Only those to this number or id.", max_length=addresses.LONGEST
    )
    reference = serializers.CharField(
        required=False, help_text="Only those with this reference.", max_length=120
    )
    created_after = InstantField(required=False, help_text="Only those accepted at or after this moment.")
    created_before = InstantField(required=False, help_text="Only those accepted before this moment.")


class MessagePageSerializer(serializers.Serializer[Any]):
    messages = MessageSerializer(many=True, help_text="Newest first.")
    next_cursor = serializers.CharField(allow_null=True, help_text="For the next page; null on the last one.")


class BatchSerializer(StrictSerializer):
    """Messages to send. Each is accepted or refused for itself."""

    messages = serializers.ListField(
        child=serializers.DictField(),
        min_length=1,
        max_length=MOST_AT_ONCE,
        help_text=f"Up to {MOST_AT_ONCE} messages, each as for `POST /api/messages`.",
    )


class BatchRequestSerializer(serializers.Serializer[Any]):
    """BatchSerializer, for the schema: says what each message looks like."""

    messages = SubmissionSerializer(many=True, help_text=f"Up to {MOST_AT_ONCE} messages.")


class BatchItemSerializer(serializers.Serializer[Any]):
    """What became of one message of a batch."""

    status = serializers.IntegerField(
        help_text="The HTTP status that it would have had alone; 202: accepted."
    )
    replayed = serializers.BooleanField(help_text="Whether an earlier request had it accepted.")
    message = MessageSerializer(allow_null=True, help_text="The message; null unless it was accepted.")
    error = ErrorBodySerializer(allow_null=True, help_text="Why it was refused; null unless it was.")


class BatchResultSerializer(serializers.Serializer[Any]):
    accepted = serializers.IntegerField(help_text="How many were accepted, now or by an earlier request.")
    refused = serializers.IntegerField(help_text="How many were refused.")
    results = BatchItemSerializer(many=True, help_text="One for each message, in their order.")


class WhySerializer(serializers.Serializer[Any]):
    """Why a message has not gone out yet."""

    id = serializers.CharField(help_text="The message's id.")
    status = serializers.ChoiceField(Status.choices, help_text="Where it stands.")
    why = serializers.CharField(
        allow_null=True, help_text="One sentence; null when it does not wait any more."
    )
    position = serializers.IntegerField(allow_null=True, help_text="Its place in the instance's queue.")
    expected_at = InstantField(
        allow_null=True, help_text="When it should go out; null while nobody can know."
    )
    deliver_until = InstantField(help_text="Not sent after this moment.")
    attempts = serializers.IntegerField(help_text="How often it was handed to the provider.")


class EventSerializer(serializers.Serializer[Any]):
    """One line of a message's timeline."""

    id = serializers.CharField(help_text="The event's id.")
    at = InstantField(help_text="When it happened.")
    kind = serializers.ChoiceField(
        [*Status.choices, ("held", _("Held"))],
        help_text="The state that it is about, or `held`: `detail` then names the gate, the reason and until when.",
    )
    applied = serializers.BooleanField(help_text="False for news that came too late to change anything.")
    detail = serializers.DictField(help_text="What else is known about it.")


class TimelineSerializer(serializers.Serializer[Any]):
    events = EventSerializer(many=True, help_text="Oldest first.")


# Made once: each instance of a serializer copies all its fields, which costs more than using them. They keep no state.
SUBMISSION = SubmissionSerializer()
MESSAGE = MessageSerializer()
WHY_FIELDS = tuple(WhySerializer().get_fields())


def shown(message: Message, forecast: Forecast | None = None) -> dict[str, Any]:
    """A message as MessageSerializer shows it, with its forecast where there is one."""
    fields = {name: read(message) for name, read in READERS.items()}
    if forecast:
        fields["position"] = forecast.position
        fields["expected_at"] = instant(forecast.expected_at)
    return fields


def _reader(field: serializers.Field[Any, Any, Any, Any]) -> Callable[[Message], Any]:
    """What a field shows, without what DRF asks each time anew: half of the time that an answer takes."""
    if isinstance(field, serializers.SerializerMethodField):
        method: Callable[[Message], Any] = getattr(MESSAGE, str(field.method_name))
        return method
    read = attrgetter(str(field.source))
    if isinstance(field, InstantField):
        return lambda message: instant(read(message))
    if isinstance(field, serializers.ChoiceField):
        return lambda message: str(read(message))
    return read


READERS = {name: _reader(field) for name, field in MESSAGE.fields.items()}
