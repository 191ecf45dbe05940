"""Administration of the calls that providers made to us."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from instances.admin import OF_INSTANCE
from pilot.admin import RecordAdmin
from webhooks.models import InboundCall

# Evolution API puts the key of the instance into every event.
SECRET = frozenset({"apikey", "api_key", "token", "authorization"})
HIDDEN = "••••••"


@admin.register(InboundCall)
class InboundCallAdmin(RecordAdmin):
    list_display = ("id", "instance", "event", "received_at", "applied_at", "error")
    list_filter = (("applied_at", admin.EmptyFieldListFilter), OF_INSTANCE)
    list_select_related = ("instance",)
    search_fields = ("=event", "=instance__name")
    ordering = ("-id",)
    fields = ("instance", "event", "received_at", "applied_at", "error", "content")

    def get_queryset(self, request: HttpRequest) -> QuerySet[InboundCall]:
        """The list needs no bodies, and nothing here needs the instance's secrets."""
        rows = super().get_queryset(request)
        return rows.defer("body", "instance__credentials", "instance__hook_token")

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
