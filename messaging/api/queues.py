"""The queues of a tenant's instances over the API: the numbers of the dashboard's page."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.authentication import key_of
from accounts.models import Scope
from instances.models import Instance, InstanceStatus
from messaging.queues import HOURS, Queue, present, queues
from pilot.api import ApiView, InstantField, PageFilter, cursor_of, refusals


class QueueSerializer(serializers.Serializer[Any]):
    """An instance's queue. Times are null where there is none, or where nobody can know."""

    instance = serializers.CharField(source="instance.name", help_text="Its name.")
    status = serializers.ChoiceField(
        InstanceStatus.choices, source="instance.status", help_text="Messages wait unless it is `open`."
    )
    paused = serializers.BooleanField(
        source="instance.paused", help_text="Whether somebody put its sending on hold."
    )
    queued = serializers.IntegerField(source="waiting.ready", help_text="Messages that wait and may go.")
    delayed = serializers.IntegerField(
        source="waiting.delayed", help_text="Messages that are scheduled, or are tried again later."
    )
    in_flight = serializers.IntegerField(help_text="Messages that are being handed to the provider.")
    oldest_seconds = serializers.IntegerField(
        allow_null=True, help_text="How long the oldest message that may go has waited."
    )
    failed = serializers.IntegerField(help_text=f"Messages that failed in the last {HOURS} hours.")
    sent_per_hour = serializers.IntegerField(help_text="Over the last sixty minutes.")
    sent_by_hour = serializers.ListField(
        child=serializers.IntegerField(),
        source="sent",
        help_text=f"In each of the last {HOURS} hours of the clock, the current one last.",
    )
    breaker_until = InstantField(
        allow_null=True, help_text="Until when its server is left alone, because it does not answer."
    )
    next_send_at = InstantField(allow_null=True, help_text="When the next message may start.")
    empty_at = InstantField(allow_null=True, help_text="When, as far as anybody can tell, nothing waits.")
    too_long = serializers.BooleanField(help_text="Whether more wait than the operator's threshold.")
    too_old = serializers.BooleanField(help_text="Whether the oldest waits longer than the threshold.")
    cancelling = serializers.SerializerMethodField(
        help_text="How many waiting messages are still to be cancelled, by order of somebody."
    )

    def get_cancelling(self, queue: Queue) -> int:
        return queue.purge.total - queue.purge.cancelled if queue.purge else 0


class QueuePageSerializer(serializers.Serializer[Any]):
    queues = QueueSerializer(many=True, help_text="In the order of the instances' names.")
    next_cursor = serializers.CharField(allow_null=True, help_text="For the next page; null on the last one.")


class QueuesView(ApiView):
    read_scope = Scope.INSTANCES_READ

    @extend_schema(
        operation_id="list_queues",
        summary="List queues",
        description="How the queue of each of the tenant's instances is, without those that were removed.",
        parameters=[PageFilter],
        responses={200: QueuePageSerializer} | refusals(400, 403),
    )
    def get(self, request: Request) -> Response:
        form = PageFilter(data=request.query_params.dict())
        form.is_valid(raise_exception=True)
        limit, cursor = form.validated_data["limit"], form.validated_data.get("cursor", "")
        mine = present(Instance.objects.filter(tenant_id=key_of(request).tenant_id))
        page = queues(mine.filter(name__gt=cursor).order_by("name")[: limit + 1], now=timezone.now())
        more = len(page) > limit
        return Response(
            {
                "queues": QueueSerializer(page[:limit], many=True).data,
                "next_cursor": cursor_of(page[limit - 1].instance.name) if more else None,
            }
        )
