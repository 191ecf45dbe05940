"""Administration of the calls that providers made to us, and of what customers are told. Secrets are never shown."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from accounts.admin import OF_TENANT
from instances.admin import OF_INSTANCE
from pilot.admin import RecordAdmin
from webhooks.models import InboundCall, WebhookDelivery, WebhookEndpoint, WebhookEvent, WebhookReplay

# Evolution API puts the key of the instance into every event.
SECRET = frozenset({"apikey", "api_key", "token", "authorization"})
HIDDEN = "••••••"


@admin.register(InboundCall)
class InboundCallAdmin(RecordAdmin):
    list_display = ("id", "instance", "app", "event", "received_at", "applied_at", "error")
    list_filter = (("applied_at", admin.EmptyFieldListFilter), OF_INSTANCE)
    list_select_related = ("instance", "app")
    search_fields = ("=event", "=instance__name")
    ordering = ("-id",)
    fields = ("instance", "app", "event", "received_at", "applied_at", "error", "content")

    def get_queryset(self, request: HttpRequest) -> QuerySet[InboundCall]:
        """The list needs no bodies, and nothing here needs the instance's secrets."""
        secrets = ("instance__credentials", "instance__hook_token")
        of_app = ("app__secret", "app__hook_token", "app__verify_token")
        return super().get_queryset(request).defer("body", *secrets, *of_app)

    @admin.display(description=_("content"))
    def content(self, call: InboundCall) -> SafeString:
        return format_html('<pre class="whitespace-pre-wrap break-all">{}</pre>', readable(bytes(call.body)))


def readable(body: bytes) -> str:
    """A body to look at: JSON indented and without its secrets, anything else by its length."""
    try:
        value = json.loads(body)
    except ValueError:
        return f"{len(body)} bytes that are not JSON"
    return json.dumps(_redacted(value), indent=2, ensure_ascii=False)


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: HIDDEN if name.lower() in SECRET else _redacted(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item) for item in value]
    return value


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(RecordAdmin):
    list_display = (
        "url",
        "tenant",
        "environment",
        "description",
        "failing_since",
        "disabled_at",
        "disabled_by",
    )
    list_filter = ("environment", "disabled_by", ("failing_since", admin.EmptyFieldListFilter), OF_TENANT)
    list_select_related = ("tenant",)
    search_fields = ("url", "description", "=id")
    ordering = ("-id",)
    exclude = ("headers", "secrets")

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookEndpoint]:
        return super().get_queryset(request).defer("headers", "secrets")


@admin.register(WebhookEvent)
class WebhookEventAdmin(RecordAdmin):
    list_display = ("name", "type", "tenant", "environment", "at")
    list_filter = ("type", "environment", OF_TENANT)
    list_select_related = ("tenant",)
    search_fields = ("=name", "=subject")
    ordering = ("-id",)


class OfEndpointAdmin(RecordAdmin):
    """Rows of an endpoint, without its secrets."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.select_related("endpoint").defer("endpoint__headers", "endpoint__secrets")


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(OfEndpointAdmin):
    list_display = (
        "id",
        "event",
        "endpoint",
        "status",
        "attempts",
        "last_status_code",
        "last_error",
        "next_attempt_at",
    )
    list_filter = ("status",)
    search_fields = ("=event__name", "=endpoint__id")
    ordering = ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookDelivery]:
        return super().get_queryset(request).select_related("event")


@admin.register(WebhookReplay)
class WebhookReplayAdmin(OfEndpointAdmin):
    list_display = ("id", "endpoint", "since", "until", "everything", "replayed", "finished_at")
    search_fields = ("=endpoint__id",)
    ordering = ("-id",)
