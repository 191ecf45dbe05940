"""What every page of the administration shares, and the pages about the running processes."""

from __future__ import annotations

from typing import Any

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.http import HttpRequest
from unfold.admin import ModelAdmin, TabularInline
from unfold.paginator import InfinitePaginator

from pilot.models import Heartbeat, Lease, StreamPlace

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
