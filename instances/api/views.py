"""The instance API: which instances a tenant has, and how they are."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.authentication import key_of
from accounts.models import Scope
from instances.api.serializers import InstancePageSerializer, InstanceSerializer
from instances.models import Instance, InstanceStatus
from pilot.api import ApiView, PageFilter, page_of, refusals, validated


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
        wanted = validated(PageFilter, request.query_params.dict())
        present = Instance.objects.filter(tenant_id=key_of(request).tenant_id).exclude(
            status=InstanceStatus.REMOVED
        )
        columns = present.only("name", "status", "status_changed_at", "paused", "number")
        rows = columns.filter(name__gt=wanted.get("cursor", "")).order_by("name")
        page, next_cursor = page_of(rows, limit=wanted["limit"], place=lambda instance: instance.name)
        return Response({"instances": InstanceSerializer(page, many=True).data, "next_cursor": next_cursor})
