"""Administration of people, tenants and keys."""

from __future__ import annotations

from datetime import datetime

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from unfold.admin import TabularInline
from unfold.contrib.filters.admin import AutocompleteSelectFilter
from unfold.forms import AdminPasswordChangeForm

from accounts import audit, keys
from accounts.forms import NewUserForm, UserForm
from accounts.models import Action, ApiKey, AuditEntry, Event, Membership, Project, Tenant, User
from pilot.admin import RecordAdmin, RowAdmin

OF_TENANT = ("tenant", AutocompleteSelectFilter)
OF_PROJECT = ("project", AutocompleteSelectFilter)

# What other packages registered without our looks.
for model in (Group, EmailAddress, Authenticator, AccessAttempt, AccessLog, AccessFailureLog):
    admin.site.unregister(model)


class MembershipInline(TabularInline):
    model = Membership
    fields = ("tenant", "user", "role")
    autocomplete_fields = ("tenant", "user")
    extra = 0


@admin.register(User)
class UserAdmin(DjangoUserAdmin, RowAdmin):  # type: ignore[type-arg]
    form = UserForm
    add_form = NewUserForm
    change_password_form = AdminPasswordChangeForm
    inlines = (MembershipInline,)
    list_display = ("email", "name", "is_staff", "is_active", "last_login")
    list_filter = ("is_staff", "is_superuser", "is_active")
    search_fields = ("email", "name")
    ordering = ("email",)
    readonly_fields = ("last_login", "date_joined")
    filter_horizontal = ()
    autocomplete_fields = ("groups",)
    fieldsets = (
        (None, {"fields": ("email", "name", "password")}),
        (_("Alerts"), {"fields": ("alert_number", "alert_language")}),
        (_("Rights"), {"fields": ("is_active", "is_staff", "is_superuser", "groups")}),
        (_("Dates"), {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = ((None, {"fields": ("email", "name", "usable_password", "password1", "password2")}),)


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, RowAdmin):
    pass


@admin.register(Tenant)
class TenantAdmin(RowAdmin):
    inlines = (MembershipInline,)
    list_display = ("name", "slug", "time_zone", "created_at")
    search_fields = ("name", "slug")
    ordering = ("name",)
    readonly_fields = ("created_at",)
    prepopulated_fields = {"slug": ("name",)}


@admin.register(Project)
class ProjectAdmin(RowAdmin):
    list_display = ("name", "slug", "tenant", "created_at")
    list_filter = (OF_TENANT,)
    list_select_related = ("tenant",)
    search_fields = ("name", "slug", "tenant__name")
    ordering = ("name",)
    autocomplete_fields = ("tenant",)
    readonly_fields = ("created_at",)


@admin.register(Membership)
class MembershipAdmin(RowAdmin):
    list_display = ("user", "tenant", "role", "created_at")
    list_filter = ("role", OF_TENANT)
    list_select_related = ("user", "tenant")
    search_fields = ("user__email", "user__name", "tenant__name")
    ordering = ("-id",)
    autocomplete_fields = ("tenant", "user")
    readonly_fields = ("created_at",)


@admin.register(ApiKey)
class ApiKeyAdmin(RecordAdmin):
    """Keys are issued where their raw form can be handed over; here they are seen and ended."""

    actions = ("revoke",)
    list_display = ("name", "prefix", "tenant", "project", "environment", "last_used_at", "revoked_at")
    list_filter = ("environment", OF_TENANT, ("revoked_at", admin.EmptyFieldListFilter))
    list_select_related = ("tenant", "project")
    search_fields = ("=prefix", "name", "tenant__name")
    ordering = ("-id",)
    exclude = ("digest",)

    @admin.action(description=_("Revoke the selected keys"), permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        """Ends the keys at once."""
        now = timezone.now()
        count = sum(_revoke(request, key, now) for key in queryset)
        done = ngettext("%(count)s key was revoked.", "%(count)s keys were revoked.", count)
        self.message_user(request, done % {"count": count}, messages.SUCCESS)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        """Whoever may change keys in principle; the pages themselves stay read-only."""
        return request.user.has_perm("accounts.change_apikey")


@transaction.atomic
def _revoke(request: HttpRequest, key: ApiKey, now: datetime) -> bool:
    revoked = keys.revoke(key, now=now)
    if revoked:
        audit.record(tenant=key.tenant, actor=person(request), action=Action.KEY_REVOKED, target=key)
    return revoked


def person(request: HttpRequest) -> User:
    """Who acts in the administration."""
    assert isinstance(request.user, User)
    return request.user


@admin.register(AuditEntry)
class AuditEntryAdmin(RecordAdmin):
    list_display = ("at", "actor", "action", "target_kind", "target_name", "tenant")
    list_filter = ("action", OF_TENANT)
    list_select_related = ("tenant",)
    search_fields = ("=actor", "=target_id", "=target_name", "=request_id")
    ordering = ("-id",)


@admin.register(EmailAddress)
class EmailAddressAdmin(RowAdmin):
    list_display = ("email", "user", "primary", "verified")
    list_filter = ("primary", "verified")
    list_select_related = ("user",)
    search_fields = ("email", "user__email")
    ordering = ("-id",)
    autocomplete_fields = ("user",)


@admin.register(Event)
class EventAdmin(RecordAdmin):
    list_display = ("kind", "tenant", "subject", "at", "position")
    list_filter = (OF_TENANT,)
    list_select_related = ("tenant",)
    search_fields = ("=kind", "=subject")
    ordering = ("-id",)


@admin.register(Authenticator)
class AuthenticatorAdmin(RecordAdmin):
    """Second factors: never shown, but deleted for someone who lost theirs."""

    list_display = ("user", "type", "created_at", "last_used_at")
    list_filter = ("type",)
    list_select_related = ("user",)
    search_fields = ("user__email",)
    ordering = ("-id",)
    exclude = ("data",)

    def has_delete_permission(self, request: HttpRequest, obj: Authenticator | None = None) -> bool:
        return request.user.has_perm("mfa.delete_authenticator")


@admin.register(AccessAttempt)
class AccessAttemptAdmin(RecordAdmin):
    """Failed sign-ins; deleting one opens the door again before its time."""

    list_display = ("username", "ip_address", "failures_since_start", "attempt_time")
    search_fields = ("=username", "=ip_address")
    ordering = ("-attempt_time",)
    exclude = ("get_data", "post_data")

    def has_delete_permission(self, request: HttpRequest, obj: AccessAttempt | None = None) -> bool:
        return request.user.has_perm("axes.delete_accessattempt")


@admin.register(AccessLog)
class AccessLogAdmin(RecordAdmin):
    list_display = ("username", "ip_address", "attempt_time", "logout_time")
    search_fields = ("=username", "=ip_address")
    ordering = ("-id",)
