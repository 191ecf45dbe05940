"""The API of usage: how many messages a key's project had accepted in a month."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext_lazy
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.authentication import key_of
from accounts.models import Scope
from billing import metering
from pilot.api import ApiView, QuerySerializer, refusals, validated

MONTH = re.compile(r"([1-9][0-9]{3})-(0[1-9]|1[0-2])")


@extend_schema_field({"type": "string", "pattern": f"^{MONTH.pattern}$"})
class MonthField(serializers.Field[date, str, str, Any]):
    """`2026-11` outside, its first day inside."""

    default_error_messages = {"bad_month": gettext_lazy("Write a month as 2026-11.")}

    def to_internal_value(self, data: str) -> date:
        month = MONTH.fullmatch(str(data))
        if not month:
            self.fail("bad_month")
        return date(int(month[1]), int(month[2]), 1)

    def to_representation(self, value: date) -> str:
        return f"{value:%Y-%m}"


class UsageFilter(QuerySerializer):
    """Which month."""

    month = MonthField(
        required=False, help_text="Such as `2026-11`; the current one in the tenant's time zone unless given."
    )


class UsageSerializer(serializers.Serializer[Any]):
    """What was used in a month of the tenant's time zone."""

    month = MonthField(help_text="Such as `2026-11`.")
    environment = serializers.CharField(help_text="`live` or `test`, as the key that asks.")
    accepted = serializers.IntegerField(
        help_text="Messages that were accepted, whatever became of them. Zero for months to come."
    )


class UsageView(ApiView):
    read_scope = Scope.USAGE_READ

    @extend_schema(
        operation_id="get_usage",
        summary="Get a month's usage",
        description="Of the key's project and environment. Counted as messages are accepted, so it is exact.",
        parameters=[UsageFilter],
        responses={200: UsageSerializer} | refusals(400, 403),
    )
    def get(self, request: Request) -> Response:
        key = key_of(request)
        wanted = validated(UsageFilter, request.query_params.dict())
        month = wanted.get("month") or metering.month_of(key.tenant, timezone.now())
        accepted = metering.accepted_of(project_id=key.project_id, environment=key.environment, month=month)
        shown = {"month": month, "environment": key.environment, "accepted": accepted}
        return Response(UsageSerializer(shown).data)


urlpatterns = [path("usage", UsageView.as_view(), name="usage")]
