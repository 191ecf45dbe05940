"""The dashboard's page about who changed what."""

from __future__ import annotations

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import path
from django.views.decorators.http import require_safe

from accounts.models import AuditEntry, Role
from accounts.tenancy import MemberRequest, member_view

PAGE = 50


@require_safe
@member_view(role=Role.ADMIN)
def audit_log(request: MemberRequest) -> HttpResponse:
    """The tenant's entries, newest first, from the one with the id `before` on."""
    rows = list(
        _below(AuditEntry.objects.filter(tenant=request.tenant), request.GET.get("before", ""))[: PAGE + 1]
    )
    older = rows[PAGE - 1].pk if len(rows) > PAGE else None
    return render(request, "dashboard/audit.html", {"entries": rows[:PAGE], "older": older})


def _below(entries: QuerySet[AuditEntry], before: str) -> QuerySet[AuditEntry]:
    if before.isdecimal() and len(before) < 19:
        entries = entries.filter(pk__lt=int(before))
    return entries.order_by("-id")


urlpatterns = [path("audit", audit_log, name="audit")]
