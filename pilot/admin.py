"""What every page of the administration shares, and the pages about the running processes."""

from __future__ import annotations

from typing import Any

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy
from unfold.admin import ModelAdmin, TabularInline
from unfold.paginator import InfinitePaginator

from pilot.alerts.wording import sentence, title
from pilot.models import Alert, AlertDelivery, Heartbeat, Lease, StreamPlace, Tally

# The administration signs people in by the same door as the dashboard, or it would go round their second factor.
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]


class RowAdmin(ModelAdmin):
    """A model's pages, for tables of any size: nothing is counted, and relations are looked up, not listed."""

    paginator = InfinitePaginator
    show_full_result_count = False
    list_per_page = 50
    list_filter_submit = True
    compressed_fields = True


class ReadOnly:
    """For rows that only programs write."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class RecordAdmin(ReadOnly, RowAdmin):
    """Pages of rows that only programs write: to look at."""


class RecordInline(ReadOnly, TabularInline):
    """Rows that only programs write, below the one they belong to."""

    extra = 0
    show_change_link = False


@admin.register(Heartbeat)
class HeartbeatAdmin(RecordAdmin):
    list_display = ("name", "kind", "progressed_at")
    list_filter = ("kind",)
    search_fields = ("name",)
    ordering = ("name",)


@admin.register(Lease)
class LeaseAdmin(RecordAdmin):
    list_display = ("name", "until")
    search_fields = ("name",)
    ordering = ("name",)


@admin.register(StreamPlace)
class StreamPlaceAdmin(RecordAdmin):
    list_display = ("name", "position")
    search_fields = ("name",)
    ordering = ("name",)


class OpenFilter(admin.SimpleListFilter):
    """Alerts that are open, or those that are over."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("open", pgettext_lazy("alert", "Open")), ("over", _("Over"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Alert]) -> QuerySet[Alert]:
        wanted = {"open": Q(recovered_at=None), "over": Q(recovered_at__isnull=False)}
        return queryset.filter(wanted.get(self.value() or "", Q()))


class DeliveryInline(RecordInline):
    model = AlertDelivery
    fields = (
        "notice",
        "channel",
        "recipient",
        "state",
        "attempts",
        "next_attempt_at",
        "delivered_at",
        "error",
    )
    ordering = ("id",)


@admin.register(Alert)
class AlertAdmin(RecordAdmin):
    inlines = (DeliveryInline,)
    list_display = ("what", "said", "tenant", "raised_at", "recovered_at")
    list_filter = (OpenFilter, "kind")
    list_select_related = ("tenant",)
    search_fields = ("=kind", "=subject")
    ordering = ("-id",)
    fields = (
        "what",
        "said",
        "kind",
        "subject",
        "tenant",
        "detail",
        "raised_at",
        "seen_at",
        "times",
        "recovered_at",
    )

    @admin.display(description=_("alert"))
    def what(self, alert: Alert) -> str:
        return title(alert)

    @admin.display(description=_("text"))
    def said(self, alert: Alert) -> str:
        return sentence(alert)


@admin.register(AlertDelivery)
class AlertDeliveryAdmin(RecordAdmin):
    list_display = ("alert", "notice", "channel", "recipient", "state", "attempts", "delivered_at", "error")
    list_filter = ("state", "channel", "notice")
    list_select_related = ("alert",)
    search_fields = ("=alert__subject", "=recipient")
    ordering = ("-id",)


@admin.register(Tally)
class TallyAdmin(RecordAdmin):
    list_display = ("name", "labels", "value")
    search_fields = ("name",)
    ordering = ("name", "labels")
