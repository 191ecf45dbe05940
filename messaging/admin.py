"""Administration of templates, contacts and messages. A message is looked at, never edited: see status.move()."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import AutocompleteSelectFilter

from accounts.admin import OF_PROJECT, OF_TENANT
from instances.admin import OF_INSTANCE
from messaging.models import (
    CommentAnswer,
    Contact,
    IdempotencyKey,
    Message,
    MessageEvent,
    MessageLabel,
    OptIn,
    ParkedReceipt,
    ProjectTurn,
    Purge,
    ReceivedMessage,
    Template,
    TemplateVersion,
    UnknownPolicy,
    Window,
)
from pilot.admin import RecordAdmin, RecordInline, RowAdmin

SECRETS_OF_INSTANCE = ("instance__credentials", "instance__hook_token")


class OfInstanceAdmin(RecordAdmin):
    """Records that show their instance; its secrets stay in the database."""

    list_filter: Sequence[Any] = (OF_INSTANCE,)
    list_select_related: Sequence[str] = ("instance",)
    ordering = ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).defer(*SECRETS_OF_INSTANCE)


class VersionInline(RecordInline):
    model = TemplateVersion
    fields = ("number", "content", "variables", "created_at")
    ordering = ("-number",)


@admin.register(Template)
class TemplateAdmin(RecordAdmin):
    """A template changes by publishing a version, which the API does."""

    inlines = (VersionInline,)
    list_display = ("name", "category", "status", "tenant", "project", "created_at")
    list_filter = ("category", "status", OF_TENANT)
    list_select_related = ("tenant", "project")
    search_fields = ("name", "tenant__name")
    ordering = ("-id",)
    fields = ("tenant", "project", "name", "category", "status", "current_version", "created_at")


@admin.register(TemplateVersion)
class TemplateVersionAdmin(RecordAdmin):
    list_display = ("template", "number", "created_at")
    list_filter = (("template", AutocompleteSelectFilter),)
    list_select_related = ("template",)
    search_fields = ("template__name",)
    ordering = ("-id",)


@admin.register(Contact)
class ContactAdmin(RowAdmin):
    list_display = ("number", "name", "tenant", "created_at")
    list_filter = (OF_TENANT,)
    list_select_related = ("tenant",)
    search_fields = ("=number", "name")
    ordering = ("-id",)
    autocomplete_fields = ("tenant",)
    readonly_fields = ("recipient_id", "created_at")


@admin.register(OptIn)
class OptInAdmin(RecordAdmin):
    list_display = ("number", "tenant", "source", "granted_at", "revoked_at")
    list_filter = (OF_TENANT, ("revoked_at", admin.EmptyFieldListFilter))
    list_select_related = ("tenant",)
    search_fields = ("=number",)
    ordering = ("-id",)


@admin.register(MessageLabel)
class MessageLabelAdmin(RecordAdmin):
    list_display = ("name", "value", "message", "project")
    list_select_related = ("project",)
    search_fields = ("=message__id", "=value")
    ordering = ("-id",)


@admin.register(UnknownPolicy)
class UnknownPolicyAdmin(RowAdmin):
    list_display = ("tenant", "category", "resend")
    list_select_related = ("tenant",)
    search_fields = ("tenant__name",)
    ordering = ("-id",)
    autocomplete_fields = ("tenant",)


class EventInline(RecordInline):
    model = MessageEvent
    fields = ("at", "kind", "applied", "detail")
    ordering = ("id",)


@admin.register(Message)
class MessageAdmin(OfInstanceAdmin):
    inlines = (EventInline,)
    list_display = ("id", "to", "status", "failure_code", "category", "tenant", "instance", "created_at")
    list_filter = ("status", "failure_code", "category", "environment", OF_TENANT, OF_PROJECT, OF_INSTANCE)
    list_select_related = ("tenant", "instance")
    search_fields = ("=id", "=to", "=provider_message_id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        return super().get_queryset(request).defer("lease_token")


@admin.register(MessageEvent)
class MessageEventAdmin(RecordAdmin):
    list_display = ("id", "message", "kind", "applied", "at", "position")
    list_filter = ("applied",)
    list_select_related = ("message",)
    search_fields = ("=message__id",)
    ordering = ("-id",)


@admin.register(ReceivedMessage)
class ReceivedMessageAdmin(OfInstanceAdmin):
    list_display = ("at", "sender_number", "kind", "text", "tenant", "instance")
    list_filter = (OF_TENANT, OF_INSTANCE)
    list_select_related = ("tenant", "instance")
    search_fields = ("=sender_number", "=provider_message_id")


@admin.register(ParkedReceipt)
class ParkedReceiptAdmin(OfInstanceAdmin):
    list_display = ("provider_message_id", "status", "instance", "at")
    search_fields = ("=provider_message_id",)


@admin.register(ProjectTurn)
class ProjectTurnAdmin(OfInstanceAdmin):
    list_display = ("instance", "project", "turn")
    list_select_related = ("instance", "project")
    search_fields = ("=instance__name", "project__name")


@admin.register(Window)
class WindowAdmin(OfInstanceAdmin):
    list_display = ("address", "instance", "received_at", "closed_at", "refused_by", "refused_at")
    search_fields = ("=address", "=instance__name")


@admin.register(CommentAnswer)
class CommentAnswerAdmin(OfInstanceAdmin):
    list_display = ("comment_id", "instance", "message", "at")
    list_select_related = ("instance", "message")
    search_fields = ("=comment_id", "=message__id")


@admin.register(Purge)
class PurgeAdmin(OfInstanceAdmin):
    list_display = ("instance", "total", "cancelled", "started_at", "finished_at")


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(RecordAdmin):
    list_display = ("key", "tenant", "environment", "message", "created_at")
    list_filter = (OF_TENANT, "environment")
    list_select_related = ("tenant", "message")
    search_fields = ("=key", "=message__id")
    ordering = ("-id",)
    exclude = ("body_digest",)
