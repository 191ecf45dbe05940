"""The shapes of the webhook API."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from drf_spectacular.utils import OpenApiExample, extend_schema_field, extend_schema_serializer
from rest_framework import serializers

from pilot.api import InstantField, PageFilter, StrictSerializer
from webhooks import payloads, signing
from webhooks.catalogue import TYPES, VERSIONS
from webhooks.endpoints import LONGEST_OVERLAP, MOST_HEADERS
from webhooks.models import DeliveryStatus, DisabledBy, WebhookDelivery, WebhookEndpoint

EVENT_TYPES = [(name, name) for name in TYPES]
PAYLOAD_VERSIONS = [(name, name) for name in VERSIONS]
FINDINGS = [
    (word, word)
    for word in ("valid", "headers_missing", "timestamp_unreadable", "no_match", "too_old", "too_new")
]


class EndpointFieldsSerializer(StrictSerializer):
    """What can be said of an endpoint."""

    url = serializers.CharField(
        max_length=2000, help_text="Where to post events: https, or http, and a public host."
    )
    description = serializers.CharField(
        max_length=120, required=False, allow_blank=True, help_text="For people."
    )
    types = serializers.ListField(
        child=serializers.ChoiceField(EVENT_TYPES),
        required=False,
        help_text="The events to be told of; empty for all, also those to come.",
    )
    version = serializers.ChoiceField(PAYLOAD_VERSIONS, required=False, help_text="The payload's version.")
    headers = serializers.DictField(
        child=serializers.CharField(max_length=1000, trim_whitespace=False),
        required=False,
        help_text=f"Up to {MOST_HEADERS} headers of your own for every request. Kept encrypted, never shown again.",
    )


@extend_schema_serializer(
    examples=[
        OpenApiExample(
            "What becomes of messages",
            value={
                "url": "https://example.com/pilot",
                "description": "CRM",
                "types": ["message.delivered", "message.read", "message.failed"],
            },
            request_only=True,
        )
    ]
)
class NewEndpointSerializer(EndpointFieldsSerializer):
    """An endpoint of the key's project and environment."""


class EndpointSerializer(serializers.Serializer[Any]):
    """An endpoint and how it is."""

    id = serializers.UUIDField(help_text="The endpoint's id.")
    url = serializers.CharField(help_text="Where events are posted.")
    description = serializers.CharField(help_text="For people.")
    types = serializers.ListField(
        child=serializers.ChoiceField(EVENT_TYPES), help_text="The events it is told of; empty for all."
    )
    version = serializers.ChoiceField(PAYLOAD_VERSIONS, help_text="The payload's version.")
    header_names = serializers.SerializerMethodField(help_text="The names of its own headers.")
    environment = serializers.CharField(help_text="`live` or `test`, as the key that made it.")
    created_at = InstantField(help_text="When it was made.")
    enabled = serializers.BooleanField(help_text="Whether anything is sent there.")
    disabled_at = InstantField(allow_null=True, help_text="When it was switched off; null while it is on.")
    disabled_by = serializers.SerializerMethodField(
        help_text="`person`, `gone` (it answered 410) or `failing`; null while it is on."
    )
    failing_since = InstantField(
        allow_null=True, help_text="Since when nothing arrives there; null while all is well."
    )
    succeeded_at = InstantField(
        allow_null=True, help_text="When something last arrived there, to about a minute."
    )

    def get_header_names(self, endpoint: WebhookEndpoint) -> list[str]:
        return sorted(endpoint.headers)

    @extend_schema_field(serializers.ChoiceField(DisabledBy.choices, allow_null=True))
    def get_disabled_by(self, endpoint: WebhookEndpoint) -> str | None:
        return endpoint.disabled_by or None


class EndpointWithSecretSerializer(EndpointSerializer):
    """An endpoint with its secret, which is not shown again."""

    secret = serializers.CharField(help_text="What its requests are signed with. Keep it like a password.")


class EndpointPageSerializer(serializers.Serializer[Any]):
    webhooks = EndpointSerializer(many=True, help_text="Oldest first.")
    next_cursor = serializers.CharField(allow_null=True, help_text="For the next page; null on the last one.")


class ChangeEndpointSerializer(EndpointFieldsSerializer):
    """What to change; everything else stays."""

    enabled = serializers.BooleanField(required=False, help_text="Switches it on or off.")
    catch_up = serializers.BooleanField(
        default=False, help_text="With `enabled`: also deliver what happened while it was off."
    )

    def get_fields(self) -> dict[str, Any]:
        fields = super().get_fields()
        fields["url"].required = False
        return fields


class RotationSerializer(StrictSerializer):
    """How long the old secret goes on."""

    overlap_seconds = serializers.IntegerField(
        min_value=0,
        max_value=int(LONGEST_OVERLAP.total_seconds()),
        default=86_400,
        help_text="For so long every request carries signatures by both secrets.",
    )

    def overlap(self) -> timedelta:
        return timedelta(seconds=self.validated_data["overlap_seconds"])


class SecretSerializer(serializers.Serializer[Any]):
    secret = serializers.CharField(help_text="The new secret. It is not shown again.")


class TestSerializer(StrictSerializer):
    """A test."""

    __test__ = False  # not one of pytest's

    type = serializers.ChoiceField(
        EVENT_TYPES, default="message.delivered", help_text="Whose example to send, marked `sample`."
    )


class ReplaySerializer(StrictSerializer):
    """Which time to deliver again."""

    since = InstantField(help_text="What happened from this moment on,")
    until = InstantField(required=False, help_text="and before this one; until now unless given.")
    everything = serializers.BooleanField(
        default=False,
        help_text="Also what has arrived. Otherwise what failed, and what the endpoint was never told.",
    )


class ReplayStateSerializer(serializers.Serializer[Any]):
    """A replay that is being worked off."""

    id = serializers.CharField(help_text="The replay's id.")
    since = InstantField(help_text="From when.")
    until = InstantField(help_text="Before when.")
    everything = serializers.BooleanField(help_text="Whether also what has arrived.")
    replayed = serializers.IntegerField(help_text="How many deliveries it has ordered so far.")
    finished_at = InstantField(allow_null=True, help_text="When it was done; null until then.")


class DeliveryFilter(PageFilter):
    """Which deliveries, newest first."""

    status = serializers.ChoiceField(
        DeliveryStatus.choices, required=False, help_text="Only those in this state."
    )
    type = serializers.ChoiceField(EVENT_TYPES, required=False, help_text="Only those of this event.")
    created_after = InstantField(required=False, help_text="Only those made at or after this moment.")
    created_before = InstantField(required=False, help_text="Only those made before this moment.")


class DeliverySerializer(serializers.Serializer[Any]):
    """An event on its way to an endpoint."""

    id = serializers.CharField(help_text="The delivery's id.")
    event_id = serializers.CharField(source="event.name", help_text="The event's id: the header webhook-id.")
    type = serializers.CharField(source="event.type", help_text="What happened.")
    status = serializers.ChoiceField(DeliveryStatus.choices, help_text="Where it stands.")
    attempts = serializers.IntegerField(help_text="How often it was tried, since it was last sent by hand.")
    created_at = InstantField(help_text="When it was made.")
    next_attempt_at = InstantField(
        allow_null=True, help_text="When it is tried again; null: as soon as it can."
    )
    finished_at = InstantField(allow_null=True, help_text="When it arrived or was given up.")
    last_status_code = serializers.IntegerField(allow_null=True, help_text="The last answer's status.")
    last_error = serializers.CharField(
        help_text="Why there was no answer: `timeout`, `unreachable`, `tls`, `cut`, `refused`; else empty."
    )


class DeliveryPageSerializer(serializers.Serializer[Any]):
    deliveries = DeliverySerializer(many=True, help_text="Newest first.")
    next_cursor = serializers.CharField(allow_null=True, help_text="For the next page; null on the last one.")


class AttemptSerializer(serializers.Serializer[Any]):
    """One attempt: what was sent and what came back, without secrets."""

    at = serializers.CharField(help_text="When.")
    seconds = serializers.FloatField(help_text="How long it took.")
    url = serializers.CharField(help_text="Where to.")
    status = serializers.IntegerField(allow_null=True, help_text="The answer's status; null without one.")
    error = serializers.CharField(help_text="Why there was no answer; else empty.")
    reason = serializers.CharField(help_text="The same as a sentence.")
    request_headers = serializers.DictField(child=serializers.CharField(), help_text="Headers sent.")
    response_headers = serializers.DictField(child=serializers.CharField(), help_text="Headers received.")
    response_body = serializers.CharField(help_text="The beginning of the answer.")


class DeliveryDetailSerializer(DeliverySerializer):
    """A delivery with its payload and its last attempts."""

    payload = serializers.SerializerMethodField(help_text="What is sent.")
    log = AttemptSerializer(many=True, help_text="Its last attempts, oldest first.")

    @extend_schema_field({"type": "object"})
    def get_payload(self, delivery: WebhookDelivery) -> dict[str, Any]:
        return payloads.envelope(delivery.event)


class EventTypeSerializer(serializers.Serializer[Any]):
    """One kind of event."""

    name = serializers.CharField(help_text="What `types` refers to.")
    description = serializers.CharField(help_text="When it happens.")
    schema = serializers.DictField(help_text="The JSON Schema of its data.")
    example = serializers.DictField(help_text="An example of its data.")


class CatalogueSerializer(serializers.Serializer[Any]):
    event_types = EventTypeSerializer(many=True, help_text="All events that there are.")


class ReceivedCallSerializer(StrictSerializer):
    """A request as your program received it."""

    headers = serializers.DictField(
        child=serializers.CharField(max_length=2000, allow_blank=True), help_text="Its headers."
    )
    body = serializers.CharField(
        max_length=1_000_000,
        allow_blank=True,
        trim_whitespace=False,
        help_text="Its body, byte for byte as UTF-8: parsed and written again it is another.",
    )


class FindingSerializer(serializers.Serializer[Any]):
    """What a careful receiver would find."""

    finding = serializers.ChoiceField(
        FINDINGS,
        help_text="`valid`, or what is wrong. `too_old`: its signature is right, but more than 5 minutes old.",
    )


def examine(endpoint: WebhookEndpoint, call: dict[str, Any], *, now: datetime) -> str:
    """What is to be said of a received call, by the endpoint's secrets."""
    secrets = signing.working(endpoint.secrets, now=now)
    return signing.examine(
        call["headers"], call["body"].encode("utf-8", "surrogatepass"), secrets=secrets, now=now
    )
