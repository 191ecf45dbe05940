"""Pages about the signed-in person, the keys of their tenant's programs, and who changed what."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import path
from django.views.decorators.http import require_POST

from accounts import audit_pages, key_pages, tenancy
from accounts.forms import TenantChoice
from accounts.tenancy import MemberRequest, member_view


@require_POST
@member_view()
def choose_tenant(request: MemberRequest) -> HttpResponse:
    """Acts for another of the person's tenants from now on."""
    form = TenantChoice(request.POST)
    if not form.is_valid() or not tenancy.choose(request, form.cleaned_data["tenant"]):
        raise Http404
    return redirect("dashboard:home")


urlpatterns = [
    path("tenant", choose_tenant, name="choose_tenant"),
    *key_pages.urlpatterns,
    *audit_pages.urlpatterns,
]
