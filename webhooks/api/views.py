"""The webhook API: parse, one call, answer. A key sees the endpoints of its project and environment."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from accounts.api.authentication import key_of
from accounts.models import ApiKey, Scope
from pilot.api import ApiView, PageFilter, cursor_of, refusals
from webhooks import changing, deliveries
from webhooks.api import serializers as shapes
from webhooks.catalogue import TYPES
from webhooks.models import WebhookDelivery, WebhookEndpoint

PLACE_LIMIT = 2**63


class WebhooksView(ApiView):
    read_scope = Scope.WEBHOOKS_READ
    write_scope = Scope.WEBHOOKS_WRITE

    @extend_schema(
        operation_id="create_webhook",
        summary="Create a webhook",
        description="Tells an address of yours what happens, from now on. The answer has the secret, once.",
        request=shapes.NewEndpointSerializer,
        responses={201: shapes.EndpointWithSecretSerializer} | refusals(400, 403, 409, 413, 415),
    )
    def post(self, request: Request) -> Response:
        key = key_of(request)
        fields = _sent(shapes.NewEndpointSerializer, request)
        endpoint, secret = changing.create(
            actor=key,
            tenant=key.tenant,
            project=key.project,
            environment=key.environment,
            now=timezone.now(),
            **fields,
        )
        headers = {"Location": reverse("api:webhook", args=[endpoint.pk])}
        shown = shapes.EndpointSerializer(endpoint).data | {"secret": secret}
        return Response(shown, status=201, headers=headers)

    @extend_schema(
        operation_id="list_webhooks",
        summary="List webhooks",
        description="The endpoints of the key's project and environment.",
        parameters=[PageFilter],
        responses={200: shapes.EndpointPageSerializer} | refusals(400, 403),
    )
    def get(self, request: Request) -> Response:
        wanted = _asked(PageFilter, request)
        rows = endpoints_of(key_of(request)).order_by("pk")
        if cursor := wanted.get("cursor"):
            rows = rows.filter(pk__gt=_uuid(cursor))
        page, more = _page(rows, wanted["limit"])
        return Response(
            {
                "webhooks": shapes.EndpointSerializer(page, many=True).data,
                "next_cursor": cursor_of(str(page[-1].pk)) if more else None,
            }
        )


class WebhookView(ApiView):
    read_scope = Scope.WEBHOOKS_READ
    write_scope = Scope.WEBHOOKS_WRITE

    @extend_schema(
        operation_id="get_webhook",
        summary="Get a webhook",
        responses={200: shapes.EndpointSerializer} | refusals(403, 404),
    )
    def get(self, request: Request, endpoint_id: UUID) -> Response:
        return Response(shapes.EndpointSerializer(_endpoint(request, endpoint_id)).data)

    @extend_schema(
        operation_id="change_webhook",
        summary="Change a webhook",
        description="Also switches it on or off. What waits goes to the new URL.",
        request=shapes.ChangeEndpointSerializer,
        responses={200: shapes.EndpointSerializer} | refusals(400, 403, 404, 413, 415),
    )
    def patch(self, request: Request, endpoint_id: UUID) -> Response:
        endpoint, key = _endpoint(request, endpoint_id), key_of(request)
        fields = _sent(shapes.ChangeEndpointSerializer, request)
        enabled, catch_up = fields.pop("enabled", None), fields.pop("catch_up")
        with transaction.atomic():
            if fields:
                changing.change(endpoint, actor=key, **fields)
            if enabled is False:
                changing.disable(endpoint, actor=key, now=timezone.now())
            elif enabled:
                changing.enable(endpoint, actor=key, now=timezone.now(), catch_up=catch_up)
        endpoint.refresh_from_db()
        return Response(shapes.EndpointSerializer(endpoint).data)

    @extend_schema(
        operation_id="remove_webhook",
        summary="Remove a webhook",
        description="Also removes the log of its deliveries; what waits is not sent.",
        responses={204: None} | refusals(403, 404),
    )
    def delete(self, request: Request, endpoint_id: UUID) -> Response:
        changing.remove(_endpoint(request, endpoint_id), actor=key_of(request), now=timezone.now())
        return Response(status=204)


class RotateSecretView(ApiView):
    write_scope = Scope.WEBHOOKS_WRITE

    @extend_schema(
        operation_id="rotate_webhook_secret",
        summary="Rotate a webhook's secret",
        description="Makes a new secret. Until the old one ends, requests carry a signature by each.",
        request=shapes.RotationSerializer,
        responses={200: shapes.SecretSerializer} | refusals(400, 403, 404, 409, 413, 415),
    )
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        endpoint = _endpoint(request, endpoint_id)
        form = shapes.RotationSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        secret = changing.rotate(endpoint, actor=key_of(request), overlap=form.overlap(), now=timezone.now())
        return Response({"secret": secret})


class TestView(ApiView):
    write_scope = Scope.WEBHOOKS_WRITE

    @extend_schema(
        operation_id="test_webhook",
        summary="Send a test event",
        description="Sends an event's example to this endpoint, whatever it asked for. Its `sample` is true.",
        request=shapes.TestSerializer,
        responses={202: shapes.DeliverySerializer} | refusals(400, 403, 404, 409, 413, 415),
    )
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        endpoint, fields = _endpoint(request, endpoint_id), _sent(shapes.TestSerializer, request)
        delivery = deliveries.send_test(endpoint, type=fields["type"], now=timezone.now())
        return Response(shapes.DeliverySerializer(delivery).data, status=202)


class ReplayView(ApiView):
    write_scope = Scope.WEBHOOKS_WRITE

    @extend_schema(
        operation_id="replay_webhook",
        summary="Deliver a time again",
        description="What did not arrive in that time, or everything. Receivers see the same ids as before.",
        request=shapes.ReplaySerializer,
        responses={202: shapes.ReplayStateSerializer} | refusals(400, 403, 404, 409, 413, 415),
    )
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        endpoint, now = _endpoint(request, endpoint_id), timezone.now()
        fields = {"until": now} | _sent(shapes.ReplaySerializer, request)
        replay = changing.order_replay(endpoint, actor=key_of(request), now=now, **fields)
        return Response(shapes.ReplayStateSerializer(replay).data, status=202)


class DeliveriesView(ApiView):
    read_scope = Scope.WEBHOOKS_READ

    @extend_schema(
        operation_id="list_webhook_deliveries",
        summary="List a webhook's deliveries",
        parameters=[shapes.DeliveryFilter],
        responses={200: shapes.DeliveryPageSerializer} | refusals(400, 403, 404),
    )
    def get(self, request: Request, endpoint_id: UUID) -> Response:
        endpoint, wanted = _endpoint(request, endpoint_id), _asked(shapes.DeliveryFilter, request)
        rows = endpoint.deliveries.select_related("event").defer("log", "event__data").order_by("-id")
        rows = rows.filter(**{FILTERS[name]: value for name, value in wanted.items() if name in FILTERS})
        if cursor := wanted.get("cursor"):
            rows = rows.filter(pk__lt=_place(cursor))
        page, more = _page(rows, wanted["limit"])
        return Response(
            {
                "deliveries": shapes.DeliverySerializer(page, many=True).data,
                "next_cursor": cursor_of(str(page[-1].pk)) if more else None,
            }
        )


class DeliveryView(ApiView):
    read_scope = Scope.WEBHOOKS_READ

    @extend_schema(
        operation_id="get_webhook_delivery",
        summary="Get a delivery",
        description="With its payload and its last attempts.",
        responses={200: shapes.DeliveryDetailSerializer} | refusals(403, 404),
    )
    def get(self, request: Request, endpoint_id: UUID, delivery_id: int) -> Response:
        delivery = _delivery(_endpoint(request, endpoint_id), delivery_id)
        return Response(shapes.DeliveryDetailSerializer(delivery).data)


class ResendView(ApiView):
    write_scope = Scope.WEBHOOKS_WRITE

    @extend_schema(
        operation_id="resend_webhook_delivery",
        summary="Send a delivery again",
        description="At once, with the same id, and with all its attempts before it.",
        request=None,
        responses={202: shapes.DeliverySerializer} | refusals(403, 404, 409),
    )
    def post(self, request: Request, endpoint_id: UUID, delivery_id: int) -> Response:
        delivery = _delivery(_endpoint(request, endpoint_id), delivery_id)
        deliveries.resend(delivery, now=timezone.now())
        delivery.refresh_from_db()
        return Response(shapes.DeliverySerializer(delivery).data, status=202)


class VerifyView(ApiView):
    write_scope = Scope.WEBHOOKS_READ

    @extend_schema(
        operation_id="verify_webhook_call",
        summary="Verify a received call",
        description="For finding out why your program refuses a call: says what is wrong with its signature.",
        request=shapes.ReceivedCallSerializer,
        responses={200: shapes.FindingSerializer} | refusals(400, 403, 404, 413, 415),
    )
    def post(self, request: Request, endpoint_id: UUID) -> Response:
        endpoint, call = _endpoint(request, endpoint_id), _sent(shapes.ReceivedCallSerializer, request)
        return Response({"finding": shapes.examine(endpoint, call, now=timezone.now())})


class EventTypesView(ApiView):
    read_scope = Scope.WEBHOOKS_READ

    @extend_schema(
        operation_id="list_webhook_event_types",
        summary="List the events that there are",
        description="Each with the JSON Schema and an example of its data.",
        responses={200: shapes.CatalogueSerializer} | refusals(403),
    )
    def get(self, request: Request) -> Response:
        return Response({"event_types": shapes.EventTypeSerializer(TYPES.values(), many=True).data})


FILTERS = {
    "status": "status",
    "type": "event__type",
    "created_after": "created_at__gte",
    "created_before": "created_at__lt",
}


def endpoints_of(key: ApiKey) -> QuerySet[WebhookEndpoint]:
    """The endpoints that a key may see and change: those of its project and environment, not the whole tenant's."""
    return WebhookEndpoint.present.filter(
        tenant_id=key.tenant_id, project_id=key.project_id, environment=key.environment
    )


def _endpoint(request: Request, endpoint_id: UUID) -> WebhookEndpoint:
    endpoint = endpoints_of(key_of(request)).filter(pk=endpoint_id).first()
    if endpoint is None:
        raise Http404
    return endpoint


def _delivery(endpoint: WebhookEndpoint, delivery_id: int) -> WebhookDelivery:
    rows = endpoint.deliveries.select_related("event__project", "endpoint")
    delivery = rows.filter(pk=delivery_id).first() if delivery_id < PLACE_LIMIT else None
    if delivery is None:
        raise Http404
    return delivery


def _sent(shape: type[Serializer[Any]], request: Request) -> dict[str, Any]:
    form = shape(data=request.data)
    form.is_valid(raise_exception=True)
    return dict(form.validated_data)


def _asked(shape: type[Serializer[Any]], request: Request) -> dict[str, Any]:
    form = shape(data=request.query_params.dict())
    form.is_valid(raise_exception=True)
    return dict(form.validated_data)


def _page(rows: QuerySet[Any], limit: int) -> tuple[list[Any], bool]:
    page = list(rows[: limit + 1])
    return page[:limit], len(page) > limit


def _uuid(cursor: str) -> UUID:
    try:
        return UUID(cursor)
    except ValueError:
        raise _bad_cursor() from None


def _place(cursor: str) -> int:
    if cursor.isascii() and cursor.isdigit() and int(cursor[:20]) < PLACE_LIMIT:
        return int(cursor)
    raise _bad_cursor()


def _bad_cursor() -> ValidationError:
    return ValidationError({"cursor": [_("Not a cursor that this list gave out.")]})
