"""The dashboard's pages about instances: how each is doing, and connecting one with a live code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.db.models import Count, QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_htmx.http import HttpResponseClientRefresh

from accounts import audit
from accounts.models import Action, Role
from accounts.tenancy import MemberRequest, StaffRequest, member_view
from instances import acting, connecting, link_pages, meta_apps
from instances.forms import NewInstanceForm, NumberForm
from instances.history import lines, sentence
from instances.models import Instance, InstanceEvent, InstanceStatus
from instances.pairing import codes
from pilot.errors import PilotError
from pilot.live import Live

EVENTS = 10
WATCHED = 2  # seconds between looks while someone connects it
CALM = 10
BUTTONS = frozenset({"restart", "logout", "stop", "pause", "resume"})


@dataclass(frozen=True, slots=True)
class Card:
    """An instance at a glance: `depth` messages wait on it, `reason` is a sentence or empty."""

    instance: Instance
    depth: int
    reason: str


@require_safe
@member_view()
def instance_list(request: MemberRequest) -> HttpResponse:
    """Every instance of the tenant that was not removed."""
    return _list(request, NewInstanceForm())


@require_POST
@member_view(role=Role.ADMIN)
def new_instance(request: MemberRequest) -> HttpResponse:
    """Makes an instance and shows the code that connects it."""
    form = NewInstanceForm(request.POST)
    if not form.is_valid():
        return _list(request, form)
    now = timezone.now()
    try:
        instance = connecting.create(tenant=request.tenant, name=form.cleaned_data["name"], now=now)
    except PilotError as error:
        form.add_error("name", error.message)
        return _list(request, form)
    audit.record(tenant=request.tenant, actor=request.user, action=Action.INSTANCE_CREATED, target=instance)
    act(request, "pair", instance)
    return redirect("dashboard:instance", instance.name)


@require_safe
@member_view()
def instance_detail(request: MemberRequest, name: str) -> HttpResponse:
    """One instance: its connection, its code while it is not connected, and what happened to it."""
    return _detail(request, _instance(request, name), NumberForm())


@require_safe
@member_view()
def instance_connection(request: MemberRequest, name: str) -> HttpResponse:
    """The part of an instance's page that changes; the whole page when its buttons do."""
    instance = _instance(request, name)
    if request.GET.get("shown") != _shown(instance):
        return HttpResponseClientRefresh()
    return _connection(instance).answer(request, _context(instance))


@require_POST
@member_view(role=Role.ADMIN)
def pair(request: MemberRequest, name: str) -> HttpResponse:
    """Asks for a code to scan, and with a number for one to type as well."""
    instance = _instance(request, name)
    form = NumberForm(request.POST)
    if "number" in request.POST and not form.is_valid():
        return _detail(request, instance, form)
    number = form.cleaned_data["number"] if form.is_valid() else ""
    act(request, "pair", instance, number=number)
    return redirect("dashboard:instance", name)


@require_http_methods(["GET", "HEAD", "POST"])
@member_view(role=Role.ADMIN)
def remove(request: MemberRequest, name: str) -> HttpResponse:
    """Asks first, then removes the instance for good."""
    instance = _instance(request, name)
    if request.method != "POST":
        return render(
            request, "dashboard/remove.html", {"card": cards(_mine(request).filter(pk=instance.pk))[0]}
        )
    if not act(request, "remove", instance):
        return redirect("dashboard:instance", name)
    return redirect("dashboard:instances")


@require_POST
@member_view(role=Role.ADMIN)
def press(request: MemberRequest, name: str, action: str) -> HttpResponse:
    """One of BUTTONS."""
    if action not in BUTTONS:
        raise Http404
    act(request, action, _instance(request, name))
    return redirect("dashboard:instance", name)


def act(request: StaffRequest | MemberRequest, action: str, instance: Instance, **arguments: Any) -> bool:
    """Does it and says so, or tells the person why it did not work."""
    try:
        said = acting.act(action, instance=instance, actor=request.user, now=timezone.now(), **arguments)
    except PilotError as error:
        messages.error(request, error.message)
        return False
    if said:
        messages.success(request, str(said))
    return True


def _mine(request: MemberRequest) -> QuerySet[Instance]:
    return Instance.objects.filter(tenant=request.tenant).exclude(status=InstanceStatus.REMOVED)


def _instance(request: MemberRequest, name: str) -> Instance:
    return get_object_or_404(_mine(request).select_related("server", "tenant"), name=name)


def cards(rows: QuerySet[Instance]) -> list[Card]:
    """The instances by name, each with its queue."""
    queued = rows.filter(messages__status="queued").order_by().annotate(depth=Count("messages"))
    depths = dict(queued.values_list("pk", "depth"))
    shown = rows.defer("credentials", "hook_token").order_by("name")
    return [Card(row, depths.get(row.pk, 0), sentence(row.status_reason)) for row in shown]


def _list(request: MemberRequest, form: NewInstanceForm) -> HttpResponse:
    return render(request, "dashboard/instances.html", {"cards": cards(_mine(request)), "form": form})


def _detail(request: MemberRequest, instance: Instance, form: NumberForm) -> HttpResponse:
    connection = _connection(instance).render(request, _context(instance))
    context = {"instance": instance, "connection": connection, "form": form}
    return render(request, "dashboard/instance.html", context | {"callback": meta_apps.callback_of(instance)})


def _connection(instance: Instance) -> Live:
    url = reverse("dashboard:instance_connection", args=[instance.name])
    calm = instance.status in {InstanceStatus.OPEN, InstanceStatus.CREATED}
    return Live(
        name="connection",
        template="dashboard/_connection.html",
        url=f"{url}?shown={_shown(instance)}",
        every=CALM if calm else WATCHED,
    )


def _shown(instance: Instance) -> str:
    """What decides which buttons the page has."""
    return f"{instance.status}-{'paused' if instance.paused else 'running'}"


def _context(instance: Instance) -> dict[str, Any]:
    events = InstanceEvent.objects.filter(instance=instance).order_by("-id")[:EVENTS]
    return {
        "card": cards(Instance.objects.filter(pk=instance.pk))[0],
        "codes": codes(instance, now=timezone.now()),
        "lines": lines(events),
    }


urlpatterns = [
    *link_pages.urlpatterns,
    path("instances", instance_list, name="instances"),
    path("new-instance", new_instance, name="new_instance"),
    path("instances/<slug:name>", instance_detail, name="instance"),
    path("instances/<slug:name>/connection", instance_connection, name="instance_connection"),
    path("instances/<slug:name>/pair", pair, name="pair_instance"),
    path("instances/<slug:name>/remove", remove, name="remove_instance"),
    path("instances/<slug:name>/<slug:action>", press, name="act_on_instance"),
]
