"""Administration of what tenants used."""

from django.contrib import admin

from accounts.admin import OF_PROJECT, OF_TENANT
from billing.models import Usage
from pilot.admin import RecordAdmin


@admin.register(Usage)
class UsageAdmin(RecordAdmin):
    list_display = ("tenant", "project", "environment", "month", "slot", "accepted")
    list_filter = ("environment", OF_TENANT, OF_PROJECT)
    list_select_related = ("tenant", "project")
    search_fields = ("tenant__name", "project__name")
    ordering = ("-id",)
