"""Administration of servers and instances. Secrets are written here, never shown."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin import AutocompleteSelectFilter
from unfold.widgets import UnfoldAdminPasswordWidget, UnfoldAdminURLInputWidget

from accounts import audit
from accounts.admin import OF_TENANT, person
from accounts.models import Action
from instances.models import (
    Breaker,
    DefaultInstance,
    EvolutionServer,
    Instance,
    InstanceEvent,
    InstanceHour,
    Lane,
    MetaApp,
    MetaTemplate,
    Outage,
    UploadedMedia,
    Vitals,
)
from pilot.admin import RecordAdmin, RowAdmin

OF_INSTANCE = ("instance", AutocompleteSelectFilter)


class ServerForm(forms.ModelForm):  # type: ignore[type-arg]
    """The key is asked for once; left empty later, the stored one stays."""

    url = forms.URLField(
        label=_("URL"), widget=UnfoldAdminURLInputWidget, assume_scheme="https", max_length=200
    )
    api_key = forms.CharField(
        label=_("global API key"),
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
        help_text=_("Never shown again. Leave it empty to keep the stored key."),
        required=False,
    )

    class Meta:
        model = EvolutionServer
        fields = ("name", "url", "api_key", "capacity", "accepts_new")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial.pop("api_key", None)
        self.fields["api_key"].required = self.instance.pk is None

    def clean_api_key(self) -> str:
        return self.cleaned_data["api_key"] or self.instance.api_key


@admin.register(EvolutionServer)
class EvolutionServerAdmin(RowAdmin):
    form = ServerForm
    list_display = ("name", "url", "capacity", "accepts_new")
    list_filter = ("accepts_new",)
    search_fields = ("name", "url")
    ordering = ("name",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[EvolutionServer]:
        """Leaves the key in the database: nothing here shows it."""
        return super().get_queryset(request).defer("api_key")


@admin.register(Instance)
class InstanceAdmin(RowAdmin):
    """How an instance sends can be set; what its provider and its owner decide can only be seen."""

    list_display = ("name", "tenant", "number", "status", "paused", "server", "status_changed_at")
    list_filter = ("status", "paused", "provider", OF_TENANT, ("server", AutocompleteSelectFilter))
    list_select_related = ("tenant", "server")
    search_fields = ("name", "=number", "=provider_name", "tenant__name")
    ordering = ("-id",)
    readonly_fields = (
        "tenant",
        "name",
        "provider",
        "provider_name",
        "server",
        "number",
        "owner_id",
        "profile_name",
        "status",
        "status_reason",
        "status_changed_at",
        "created_at",
    )
    fieldsets = (
        (None, {"fields": ("tenant", "name", "number", "profile_name")}),
        (_("Connection"), {"fields": ("status", "status_reason", "status_changed_at")}),
        (_("Provider"), {"fields": ("provider", "server", "provider_name", "owner_id", "created_at")}),
        (
            _("How it sends"),
            {
                "fields": (
                    "paused",
                    "pace_least_seconds",
                    "pace_most_seconds",
                    "urgent_gap_seconds",
                    "concurrency",
                    "daily_cap",
                    "warm_up_from",
                    "typing_ms",
                    "link_preview",
                    "buttons_as_text",
                    "canary",
                )
            },
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Instance]:
        """Leaves the secrets in the database: nothing here shows them."""
        return super().get_queryset(request).defer("credentials", "hook_token", "server__api_key")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Instance | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Instance, form: Any, change: bool) -> None:
        """Tells the tenant what support changed."""
        super().save_model(request, obj, form, change)
        changed = {name: str(form.cleaned_data[name]) for name in form.changed_data}
        if changed:
            actor = person(request)
            audit.record(
                tenant=obj.tenant, actor=actor, action=Action.INSTANCE_CHANGED, target=obj, detail=changed
            )


@admin.register(InstanceEvent)
class InstanceEventAdmin(RecordAdmin):
    list_display = ("instance", "kind", "at")
    list_filter = (OF_INSTANCE,)
    list_select_related = ("instance",)
    search_fields = ("=instance__name", "=kind")
    ordering = ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[InstanceEvent]:
        return super().get_queryset(request).defer("instance__credentials", "instance__hook_token")


@admin.register(Breaker)
class BreakerAdmin(RecordAdmin):
    list_display = ("server", "failures", "open_until", "probe_until")
    list_select_related = ("server",)
    search_fields = ("server__name",)
    ordering = ("-server_id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Breaker]:
        return super().get_queryset(request).defer("server__api_key")


@admin.register(Lane)
class LaneAdmin(RecordAdmin):
    list_display = ("instance", "in_flight", "next_send_at")
    list_select_related = ("instance",)
    search_fields = ("=instance__name",)
    ordering = ("-instance_id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Lane]:
        return super().get_queryset(request).defer("instance__credentials", "instance__hook_token")


@admin.register(Outage)
class OutageAdmin(RecordAdmin):
    list_display = ("instance", "kind", "reason", "began_at", "restarts", "alerted_at", "ended_at")
    list_filter = ("kind", OF_INSTANCE)
    list_select_related = ("instance",)
    search_fields = ("=instance__name", "=reason")
    ordering = ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Outage]:
        return super().get_queryset(request).defer("instance__credentials", "instance__hook_token")


@admin.register(Vitals)
class VitalsAdmin(RecordAdmin):
    list_display = ("instance", "heard_at", "acknowledged_at", "unheard")
    list_select_related = ("instance",)
    search_fields = ("=instance__name",)
    ordering = ("-instance_id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Vitals]:
        return super().get_queryset(request).defer("instance__credentials", "instance__hook_token")


class DefaultInstanceForm(forms.ModelForm):  # type: ignore[type-arg]
    """A project may only send from an instance of its own tenant."""

    class Meta:
        model = DefaultInstance
        fields = ("project", "instance")

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if len(given) == 2 and given["project"].tenant_id != given["instance"].tenant_id:
            self.add_error("instance", _("This instance belongs to another tenant than the project."))
        return given


@admin.register(DefaultInstance)
class DefaultInstanceAdmin(RowAdmin):
    form = DefaultInstanceForm
    list_display = ("project", "instance")
    list_select_related = ("project", "instance")
    search_fields = ("project__name", "instance__name")
    ordering = ("-project_id",)
    autocomplete_fields = ("project", "instance")


@admin.register(InstanceHour)
class InstanceHourAdmin(RecordAdmin):
    list_display = ("instance", "hour", "accepted", "sent", "delivered", "failed")
    list_filter = (OF_INSTANCE,)
    list_select_related = ("instance",)
    ordering = ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[InstanceHour]:
        return super().get_queryset(request).defer("instance__credentials", "instance__hook_token")


@admin.register(MetaApp)
class MetaAppAdmin(RecordAdmin):
    """Apps come with the accounts that tenants connect; their secrets are never shown."""

    list_display = ("name", "tenant", "created_at")
    list_filter = (OF_TENANT,)
    list_select_related = ("tenant",)
    search_fields = ("name", "tenant__name")
    ordering = ("-id",)
    fields = ("name", "tenant", "created_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[MetaApp]:
        return super().get_queryset(request).defer("secret", "hook_token", "verify_token")


@admin.register(MetaTemplate)
class MetaTemplateAdmin(RecordAdmin):
    list_display = ("name", "language", "status", "category", "quality", "instance", "synced_at")
    list_filter = ("status", "language", OF_INSTANCE)
    list_select_related = ("instance",)
    search_fields = ("=name", "=instance__name")
    ordering = ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[MetaTemplate]:
        return super().get_queryset(request).defer("instance__credentials", "instance__hook_token")


@admin.register(UploadedMedia)
class UploadedMediaAdmin(RecordAdmin):
    list_display = ("media_id", "mime_type", "size", "instance", "uploaded_at", "expires_at")
    list_filter = (OF_INSTANCE,)
    list_select_related = ("instance",)
    search_fields = ("=media_id", "=digest")
    ordering = ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[UploadedMedia]:
        return super().get_queryset(request).defer("instance__credentials", "instance__hook_token")
