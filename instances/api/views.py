"""The instance API: which instances a tenant has, and how they are."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.authentication import key_of
from accounts.models import Scope
from instances.api.serializers import InstancePageSerializer, InstanceSerializer
from instances.models import Instance, InstanceStatus
from pilot.api import ApiView, PageFilter, cursor_of, refusals


class InstancesView(ApiView):
    read_scope = Scope.INSTANCES_READ

    @extend_schema(
        operation_id="list_instances",
        summary="List instances",
        description="The tenant's instances, without those that were removed.",
        parameters=[PageFilter],
        responses={200: InstancePageSerializer} | refusals(400, 403),
    )
    def get(self, request: Request) -> Response:
        form = PageFilter(data=request.query_params.dict())
        form.is_valid(raise_exception=True)
        limit, cursor = form.validated_data["limit"], form.validated_data.get("cursor", "")
        present = Instance.objects.filter(tenant_id=key_of(request).tenant_id).exclude(
            status=InstanceStatus.REMOVED
        )
        columns = present.only("name", "status", "status_changed_at", "paused", "number")
        page = list(columns.filter(name__gt=cursor).order_by("name")[: limit + 1])
        more = len(page) > limit
        return Response(
            {
                "instances": InstanceSerializer(page[:limit], many=True).data,
                "next_cursor": cursor_of(page[limit - 1].name) if more else None,
            }
        )
