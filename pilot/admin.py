"""What every page of the administration shares, and the pages about the running processes."""

from __future__ import annotations

from typing import Any

from allauth.account.decorators import secure_admin_login
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from unfold.admin import ModelAdmin, TabularInline
from unfold.paginator import InfinitePaginator

from pilot.alerts.wording import sentence, title
from pilot.celery import start
from pilot.models import (
    Alert,
    AlertDelivery,
    BeatRun,
    Heartbeat,
    Lease,
    MaintenanceKind,
    MaintenanceRun,
    RetentionPlace,
    StreamPlace,
    Tally,
)

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


@admin.register(BeatRun)
class BeatRunAdmin(RecordAdmin):
    list_display = ("name", "ran_at")
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


@admin.register(MaintenanceRun)
class MaintenanceRunAdmin(RecordAdmin):
    list_display = ("started_at", "kind", "outcome", "took", "seen", "changed")
    list_filter = ("kind", "outcome")
    search_fields = ("=kind",)
    ordering = ("-started_at",)
    list_before_template = "admin/pilot/start_maintenance.html"
    startable = MaintenanceKind.choices

    @admin.display(description=_("took"))
    def took(self, run: MaintenanceRun) -> str:
        return f"{(run.finished_at - run.started_at).total_seconds():.1f} s" if run.finished_at else "–"

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(require_POST(self.start))
        return [path("start/<str:kind>", view, name="pilot_maintenancerun_start"), *super().get_urls()]

    def start(self, request: HttpRequest, kind: str) -> HttpResponse:
        """Asks a worker for a round. One that is under way is not disturbed: the worker then does nothing."""
        if not request.user.has_perm("pilot.start_maintenance"):
            raise PermissionDenied
        if kind not in MaintenanceKind.values:
            raise Http404
        if start(f"pilot.{kind}", queue="health"):
            messages.success(request, gettext("It will start within seconds."))
        else:
            messages.error(request, gettext("No worker can be asked now: Redis does not answer."))
        return redirect("admin:pilot_maintenancerun_changelist")


@admin.register(RetentionPlace)
class RetentionPlaceAdmin(RecordAdmin):
    list_display = ("name", "reached")
    search_fields = ("name",)
    ordering = ("name",)
