"""The dashboard's page for linking an account that exists at Meta already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods, require_POST

from accounts import audit
from accounts.models import Action, Role
from accounts.tenancy import MemberRequest, member_view
from instances import linking
from instances.forms import LinkInstagramForm, LinkNumberForm, TokenForm
from instances.models import Instance, InstanceStatus, Provider
from pilot.errors import PilotError


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of account: what is asked for, and who links it."""

    title: Any
    form: type[forms.Form]
    link: Callable[..., Instance]


KINDS: Mapping[str, Kind] = {
    Provider.META: Kind(_("Link a number of the Cloud API"), LinkNumberForm, linking.link_number),
    Provider.INSTAGRAM: Kind(_("Link an Instagram account"), LinkInstagramForm, linking.link_instagram),
}


@require_http_methods(["GET", "HEAD", "POST"])
@member_view(role=Role.ADMIN)
def link(request: MemberRequest, provider: str) -> HttpResponse:
    """Asks for what Meta's dashboard shows of the account, and links it."""
    kind = KINDS.get(provider)
    if kind is None:
        raise Http404
    form = kind.form(request.POST or None)
    if form.is_valid() and (instance := _linked(request, kind, form)):
        audit.record(
            tenant=request.tenant, actor=request.user, action=Action.INSTANCE_CREATED, target=instance
        )
        return redirect("dashboard:instance", instance.name)
    return render(request, "dashboard/link.html", {"form": form, "title": kind.title})


def _linked(request: MemberRequest, kind: Kind, form: forms.Form) -> Instance | None:
    """None, and the reason on the form, when it did not work."""
    given = dict(form.cleaned_data)
    name = given.pop("name")
    try:
        return kind.link(tenant=request.tenant, name=name, now=timezone.now(), **given)
    except PilotError as error:
        form.add_error("name" if "name" in error.fields else None, error.message)
        return None


@require_POST
@member_view(role=Role.ADMIN)
def renew(request: MemberRequest, name: str) -> HttpResponse:
    """Takes another access token for a linked account, if Meta accepts it."""
    linked = Instance.objects.filter(tenant=request.tenant, app__isnull=False)
    instance = get_object_or_404(linked.exclude(status=InstanceStatus.REMOVED), name=name)
    form = TokenForm(request.POST)
    if not form.is_valid():
        messages.error(request, _("Give the new access token."))
    elif _renewed(request, instance, form.cleaned_data["token"]):
        audit.record(
            tenant=request.tenant, actor=request.user, action=Action.INSTANCE_CHANGED, target=instance
        )
        messages.success(request, _("The new access token is in use."))
    return redirect("dashboard:instance", name)


def _renewed(request: MemberRequest, instance: Instance, token: str) -> bool:
    try:
        linking.renew_token(instance=instance, token=token, now=timezone.now())
    except PilotError as error:
        messages.error(request, error.message)
        return False
    return True


urlpatterns = [
    path("link/<slug:provider>", link, name="link_account"),
    path("instances/<slug:name>/token", renew, name="renew_token"),
]
