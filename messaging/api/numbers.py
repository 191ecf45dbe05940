"""The API that checks numbers: what the numbering plan says of them, and what Pilot happens to know."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.authentication import key_of
from accounts.models import ApiKey, Scope
from messaging import numbers, reachability
from pilot.api import ApiView, StrictSerializer, refusals, validated

MOST_AT_ONCE = 100
KINDS = [(kind, kind) for kind in (*numbers.KINDS.values(), "other")]


class NumbersSerializer(StrictSerializer):
    """Numbers to check."""

    numbers = serializers.ListField(
        child=serializers.CharField(max_length=40),
        min_length=1,
        max_length=MOST_AT_ONCE,
        help_text=f"Up to {MOST_AT_ONCE} numbers as people write them, Brazilian unless they say otherwise.",
    )


class CheckedNumberSerializer(serializers.Serializer[Any]):
    """What there is to say of a number. All but `given` and `valid` is null when it is not valid."""

    given = serializers.CharField(help_text="The number as you wrote it.")
    valid = serializers.BooleanField(help_text="Whether the numbering plan of its country has such a number.")
    number = serializers.CharField(allow_null=True, help_text="In E.164.")
    country = serializers.CharField(
        allow_null=True, help_text="ISO 3166, such as `BR`; null for a number of no country."
    )
    type = serializers.ChoiceField(
        KINDS, allow_null=True, help_text="`mobile_or_fixed` where the country does not tell them apart."
    )
    on_whatsapp = serializers.BooleanField(
        allow_null=True,
        help_text="Whether it is on WhatsApp, by what became of messages to it and by whether its owner wrote; null "
        "when that says nothing. WhatsApp is never asked.",
    )


class CheckedNumbersSerializer(serializers.Serializer[Any]):
    numbers = CheckedNumberSerializer(many=True, help_text="One for each number, in their order.")


class NumbersCheckView(ApiView):
    write_scope = Scope.CONTACTS_READ  # a POST that changes nothing: numbers do not belong into addresses

    @extend_schema(
        operation_id="check_numbers",
        summary="Check numbers",
        description="Puts numbers into their normal form, and tells what is known of them. It never asks WhatsApp, "
        "because a number that looks many others up is soon banned: the first message to a number finds out.",
        request=NumbersSerializer,
        responses={200: CheckedNumbersSerializer} | refusals(400, 403, 413, 415),
    )
    def post(self, request: Request) -> Response:
        given = validated(NumbersSerializer, request.data)["numbers"]
        return Response({"numbers": _checked(key_of(request), given)})


def _checked(key: ApiKey, given: list[str]) -> list[dict[str, Any]]:
    found = [numbers.describe(written) for written in given]
    known = reachability.known(key=key, wanted={each.number for each in found if each})
    return [_shown(written, each, known) for written, each in zip(given, found, strict=True)]


def _shown(given: str, found: numbers.Description | None, known: dict[str, bool]) -> dict[str, Any]:
    return {
        "given": given,
        "valid": found is not None,
        "number": found and found.number,
        "country": found.country or None if found else None,
        "type": found and found.kind,
        "on_whatsapp": known.get(found.number) if found else None,
    }


urlpatterns = [path("numbers/check", NumbersCheckView.as_view(), name="numbers_check")]
