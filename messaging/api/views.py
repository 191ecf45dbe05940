"""The message API: parse, one call, answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api.authentication import key_of
from accounts.models import ApiKey, Scope
from messaging import numbers
from messaging.accepting import submit
from messaging.api.orders import answer_of, forecast_of, order_of
from messaging.api.serializers import (
    EventSerializer,
    MessageFilter,
    MessagePageSerializer,
    MessageSerializer,
    SubmissionSerializer,
    TimelineSerializer,
    shown,
)
from messaging.models import Message, MessageEvent
from pilot.api import ApiView, cursor_of, refusals

IDEMPOTENCY_HEADER = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="Makes it safe to ask again: the same key with the same body gives the first message again, "
    "with the header `Idempotent-Replayed: true`. Up to 255 visible ASCII characters; remembered for ever.",
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
        parameters=[MessageFilter],
        responses={200: MessagePageSerializer} | refusals(400, 403),
    )
    def get(self, request: Request) -> Response:
        form = MessageFilter(data=request.query_params.dict())
        form.is_valid(raise_exception=True)
        wanted: dict[str, Any] = form.validated_data
        messages = _after(
            _filtered(messages_of(key_of(request)), wanted), wanted.get("cursor"), key_of(request)
        )
        limit = wanted["limit"]
        page = list(messages.order_by("-created_at", "-id")[: limit + 1])
        more = len(page) > limit
        return Response(
            {
                "messages": [shown(message) for message in page[:limit]],
                "next_cursor": cursor_of(page[limit - 1].pk) if more else None,
            }
        )


class MessageView(ApiView):
    read_scope = Scope.MESSAGES_READ

    @extend_schema(
        operation_id="get_message",
        summary="Get a message",
        responses={200: MessageSerializer} | refusals(403, 404),
    )
    def get(self, request: Request, message_id: str) -> Response:
        message = messages_of(key_of(request)).filter(pk=message_id).first()
        if message is None:
            raise Http404
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


def messages_of(key: ApiKey) -> QuerySet[Message]:
    """The messages that a key may see, ready to be shown."""
    return (
        Message.objects.filter(
            tenant_id=key.tenant_id, environment=key.environment, project_id=key.project_id
        )
        .select_related("instance__lane", "instance__tenant", "template_version__template")
        .defer("content", "variables", "instance__credentials", "instance__hook_token")
        .defer("template_version__content")
    )


FILTERS = {
    "status": "status",
    "template": "template_version__template__name",
    "instance": "instance__name",
    "created_after": "created_at__gte",
    "created_before": "created_at__lt",
}


def _filtered(messages: QuerySet[Message], wanted: Mapping[str, Any]) -> QuerySet[Message]:
    messages = messages.filter(**{FILTERS[name]: value for name, value in wanted.items() if name in FILTERS})
    if "to" in wanted:
        messages = messages.filter(to__in=numbers.variants(numbers.normalise(wanted["to"])))
    return messages


def _after(messages: QuerySet[Message], cursor: str | None, key: ApiKey) -> QuerySet[Message]:
    """What follows the message that `cursor` names. Rows that come in meanwhile are newer, so nothing shifts."""
    if cursor is None:
        return messages
    last = messages_of(key).filter(pk=cursor).values_list("created_at", flat=True).first()
    if last is None:
        raise ValidationError({"cursor": [_("Not a cursor that this list gave out.")]})
    return messages.filter(created_at__lte=last).exclude(created_at=last, pk__gte=cursor)
