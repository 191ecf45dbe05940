"""The message API: parse, one call, answer."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.authentication import key_of
from accounts.models import ApiKey, Scope
from messaging.accepting import Answer, Order, submit, submit_all
from messaging.api.listing import messages_of, messages_page
from messaging.api.orders import answer_of, batch_orders, forecast_of, order_of
from messaging.api.serializers import (
    WHY_FIELDS,
    BatchRequestSerializer,
    BatchResultSerializer,
    BatchSerializer,
    EventSerializer,
    MessageFilter,
    MessagePageSerializer,
    MessageSerializer,
    SubmissionSerializer,
    TimelineSerializer,
    WhySerializer,
    shown,
)
from messaging.cancelling import cancel
from messaging.models import Message, MessageEvent
from pilot.api import ApiView, refusals, validated
from pilot.refusing import api_exception_handler

IDEMPOTENCY_HEADER = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="Makes it safe to ask again: the same key with the same body gives the first message again, "
    "with the header `Idempotent-Replayed: true`. Up to 255 visible ASCII characters; remembered for ever.",
)
METADATA_FILTER = OpenApiParameter(
    "metadata",
    {"type": "object", "additionalProperties": {"type": "string"}},
    style="deepObject",
    explode=True,
    description="Only those with these entries in their metadata: `metadata[order]=1042`.",
    examples=[OpenApiExample("By an order", value={"order": "1042"})],
)


class MessagesView(ApiView):
    read_scope = Scope.MESSAGES_READ
    write_scope = Scope.MESSAGES_WRITE

    @extend_schema(
        operation_id="send_message",
        summary="Send a message",
        description="Accepts a message: from here on it is never lost and never sent twice.",
        request=SubmissionSerializer,
        parameters=[IDEMPOTENCY_HEADER],
        responses={202: MessageSerializer} | refusals(400, 403, 409, 413, 415, 422),
    )
    def post(self, request: Request) -> Response:
        order = order_of(
            key=key_of(request),
            body=request.data,
            idempotency_key=request.headers.get("Idempotency-Key"),
        )
        body, headers = answer_of(submit(order, now=timezone.now()))
        return Response(body, status=202, headers=headers)

    @extend_schema(
        operation_id="list_messages",
        summary="List messages",
        description="The messages of the key's project and environment, newest first.",
        parameters=[MessageFilter, METADATA_FILTER],
        responses={200: MessagePageSerializer} | refusals(400, 403),
    )
    def get(self, request: Request) -> Response:
        return Response(messages_page(key_of(request), request.query_params.dict()))


class MessageBatchView(ApiView):
    write_scope = Scope.MESSAGES_WRITE

    @extend_schema(
        operation_id="send_messages",
        summary="Send many messages",
        description="Accepts up to 1,000 messages. One that is refused does not affect the others. With an "
        "`Idempotency-Key` it is safe to ask again: each message has the key and its place in the batch.",
        request=BatchRequestSerializer,
        parameters=[IDEMPOTENCY_HEADER],
        responses={200: BatchResultSerializer} | refusals(400, 403, 413, 415),
    )
    def post(self, request: Request) -> Response:
        orders = batch_orders(
            key=key_of(request),
            bodies=validated(BatchSerializer, request.data)["messages"],
            idempotency_key=request.headers.get("Idempotency-Key"),
        )
        answers = submit_all([order for order in orders if isinstance(order, Order)], now=timezone.now())
        remaining = iter(answers)
        results = [
            _result(next(remaining) if isinstance(order, Order) else order, request) for order in orders
        ]
        accepted = sum(result["status"] == 202 for result in results)
        return Response({"accepted": accepted, "refused": len(results) - accepted, "results": results})


def _result(answer: Answer | APIException, request: Request) -> dict[str, Any]:
    if isinstance(answer, Exception):
        refused = api_exception_handler(answer, {"request": request})
        error = refused.data["error"]
        return {"status": refused.status_code, "replayed": False, "message": None, "error": error}
    message = shown(answer.message, answer.forecast)
    return {"status": 202, "replayed": answer.replayed, "message": message, "error": None}


class MessageView(ApiView):
    read_scope = Scope.MESSAGES_READ

    @extend_schema(
        operation_id="get_message",
        summary="Get a message",
        responses={200: MessageSerializer} | refusals(403, 404),
    )
    def get(self, request: Request, message_id: str) -> Response:
        message = _message(key_of(request), message_id)
        return Response(shown(message, forecast_of(message)))


class MessageEventsView(ApiView):
    read_scope = Scope.MESSAGES_READ

    @extend_schema(
        operation_id="list_message_events",
        summary="Get a message's timeline",
        description="Everything that happened to the message, in the order in which it became known.",
        responses={200: TimelineSerializer} | refusals(403, 404),
    )
    def get(self, request: Request, message_id: str) -> Response:
        if not messages_of(key_of(request)).filter(pk=message_id).exists():
            raise Http404
        events = MessageEvent.objects.filter(message_id=message_id).order_by("id")
        return Response({"events": EventSerializer(events, many=True).data})


class MessageCancelView(ApiView):
    write_scope = Scope.MESSAGES_WRITE

    @extend_schema(
        operation_id="cancel_message",
        summary="Cancel a message",
        description="Calls back a message that waits; it is then never sent. Asking again changes nothing. A message "
        "that does not wait any more is refused with the code `not_cancellable` and what became of it.",
        request=None,
        responses={200: MessageSerializer} | refusals(403, 404, 409),
    )
    def post(self, request: Request, message_id: str) -> Response:
        key = key_of(request)
        return Response(shown(cancel(_message(key, message_id), now=timezone.now(), by=f"key {key.prefix}")))


class MessageWhyView(ApiView):
    read_scope = Scope.MESSAGES_READ

    @extend_schema(
        operation_id="explain_message",
        summary="Why has it not gone out yet?",
        description="What the message waits for, and when it should go out.",
        responses={200: WhySerializer} | refusals(403, 404),
    )
    def get(self, request: Request, message_id: str) -> Response:
        message = _message(key_of(request), message_id)
        fields = shown(message, forecast_of(message))
        return Response({name: fields[name] for name in WHY_FIELDS})


def _message(key: ApiKey, message_id: str) -> Message:
    message = messages_of(key).filter(pk=message_id).first()
    if message is None:
        raise Http404
    return message
