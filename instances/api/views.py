"""The instance API: which instances a tenant has, how they are, and what can be done to them."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from accounts import audit
from accounts.api.authentication import key_of
from accounts.models import Action, ApiKey, Scope
from instances import acting, connecting
from instances.api.serializers import (
    InstancePageSerializer,
    InstanceSerializer,
    NewInstanceSerializer,
    PairingSerializer,
    PairSerializer,
)
from instances.models import Instance, InstanceStatus
from pilot.api import ApiView, PageFilter, page_of, refusals, validated


class InstancesView(ApiView):
    read_scope = Scope.INSTANCES_READ
    write_scope = Scope.INSTANCES_WRITE

    @extend_schema(
        operation_id="list_instances",
        summary="List instances",
        description="The tenant's instances, without those that were removed.",
        parameters=[PageFilter],
        responses={200: InstancePageSerializer} | refusals(400, 403),
    )
    def get(self, request: Request) -> Response:
        wanted = validated(PageFilter, request.query_params.dict())
        rows = _instances(key_of(request)).only("name", "status", "status_changed_at", "paused", "number")
        page, next_cursor = page_of(
            rows.filter(name__gt=wanted.get("cursor", "")).order_by("name"),
            limit=wanted["limit"],
            place=lambda instance: instance.name,
        )
        return Response({"instances": InstanceSerializer(page, many=True).data, "next_cursor": next_cursor})

    @extend_schema(
        operation_id="create_instance",
        summary="Create an instance",
        description="A WhatsApp number to connect by scanning a code: ask for it with `pair`.",
        request=NewInstanceSerializer,
        responses={201: InstanceSerializer} | refusals(400, 403, 409, 413, 415),
    )
    def post(self, request: Request) -> Response:
        wanted, key = validated(NewInstanceSerializer, request.data), key_of(request)
        instance = connecting.create(tenant=key.tenant, name=wanted["name"], now=timezone.now())
        audit.record(tenant=key.tenant, actor=key, action=Action.INSTANCE_CREATED, target=instance)
        return Response(InstanceSerializer(instance).data, status=201)


class InstanceView(ApiView):
    read_scope = Scope.INSTANCES_READ
    write_scope = Scope.INSTANCES_WRITE

    @extend_schema(
        operation_id="get_instance",
        summary="Get an instance",
        responses={200: InstanceSerializer} | refusals(403, 404),
    )
    def get(self, request: Request, name: str) -> Response:
        return Response(InstanceSerializer(_instance(key_of(request), name)).data)

    @extend_schema(
        operation_id="remove_instance",
        summary="Remove an instance",
        description="For good: its number is unlinked, and what waits on it fails with `instance_removed`.",
        responses={204: None} | refusals(403, 404, 502),
    )
    def delete(self, request: Request, name: str) -> Response:
        _act(request, name, "remove")
        return Response(status=204)


class PairView(ApiView):
    write_scope = Scope.INSTANCES_WRITE

    @extend_schema(
        operation_id="pair_instance",
        summary="Connect an instance",
        description="Gives the code to scan with WhatsApp on the telephone; with a `number`, one to type as well. "
        "Codes are good for less than a minute: ask again for the next.",
        request=PairSerializer,
        responses={200: PairingSerializer} | refusals(400, 403, 404, 413, 415, 502),
    )
    def post(self, request: Request, name: str) -> Response:
        wanted = validated(PairSerializer, request.data)
        instance = _act(request, name, "pair", number=wanted.get("number", ""))
        instance.refresh_from_db()
        return Response(PairingSerializer(instance).data)


def _view(action: str, summary: str, description: str) -> type[ApiView]:
    """A view for one of acting.ACTS, by POST without a body."""

    @extend_schema(
        operation_id=f"{action}_instance",
        summary=summary,
        description=description,
        request=None,
        responses={200: InstanceSerializer} | refusals(403, 404, 502),
    )
    def post(_view: ApiView, request: Request, name: str) -> Response:
        instance = _act(request, name, action)
        instance.refresh_from_db()
        return Response(InstanceSerializer(instance).data)

    members = {"write_scope": Scope.INSTANCES_WRITE, "post": post}
    return type(f"{action.title()}View", (ApiView,), members)


RestartView = _view("restart", "Restart an instance", "Gives it a new connection; its number stays linked.")
LogoutView = _view("logout", "Unlink an instance's number", "The instance stays, and can be paired again.")
PauseView = _view("pause", "Pause an instance", "Its messages wait, and keep their deadlines.")
ResumeView = _view("resume", "Resume an instance", "Goes on sending, at its pace.")


def _act(request: Request, name: str, action: str, **arguments: Any) -> Instance:
    key = key_of(request)
    instance = _instance(key, name)
    acting.act(action, instance=instance, actor=key, now=timezone.now(), **arguments)
    return instance


def _instances(key: ApiKey) -> QuerySet[Instance]:
    return Instance.objects.filter(tenant_id=key.tenant_id).exclude(status=InstanceStatus.REMOVED)


def _instance(key: ApiKey, name: str) -> Instance:
    instance = _instances(key).select_related("server", "tenant").filter(name=name).first()
    if instance is None:
        raise Http404
    return instance
