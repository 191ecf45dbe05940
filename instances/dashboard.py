"""The dashboard's pages about instances: how each is doing, and connecting one with a live QR code."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounts.tenancy import MemberRequest, member_view
from instances.models import Instance, InstanceEvent, InstanceStatus
from instances.pairing import qr_svg
from pilot.live import Live

PAIRING = frozenset({InstanceStatus.CREATED, InstanceStatus.CONNECTING, InstanceStatus.CLOSED})
EVENTS = 10


@require_safe
@member_view()
def instance_list(request: MemberRequest) -> HttpResponse:
    """Every instance of the tenant that was not removed."""
    return render(request, "dashboard/instances.html", {"instances": _mine(request).order_by("name")})


@require_safe
@member_view()
def instance_detail(request: MemberRequest, name: str) -> HttpResponse:
    """One instance: its connection, its code to scan while it is not connected, and what happened to it."""
    instance = get_object_or_404(_mine(request), name=name)
    fragment = _connection(instance).render(request, _context(instance))
    return render(request, "dashboard/instance.html", {"instance": instance, "connection": fragment})


@require_safe
@member_view()
def instance_connection(request: MemberRequest, name: str) -> HttpResponse:
    """The part of an instance's page that changes."""
    instance = get_object_or_404(_mine(request), name=name)
    return _connection(instance).answer(request, _context(instance))


def _mine(request: MemberRequest) -> QuerySet[Instance]:
    rows = Instance.objects.filter(tenant=request.tenant).exclude(status=InstanceStatus.REMOVED)
    return rows.defer("credentials", "hook_token")


def _connection(instance: Instance) -> Live:
    url = reverse("dashboard:instance_connection", args=[instance.name])
    every = 2 if instance.status in PAIRING else 10
    return Live(name="connection", template="dashboard/_connection.html", url=url, every=every)


def _context(instance: Instance) -> dict[str, Any]:
    events = InstanceEvent.objects.filter(instance=instance).order_by("-id")[:EVENTS]
    return {"instance": instance, "events": events, "qr": qr_svg(instance, now=timezone.now())}


urlpatterns = [
    path("instances", instance_list, name="instances"),
    path("instances/<slug:name>", instance_detail, name="instance"),
    path("instances/<slug:name>/connection", instance_connection, name="instance_connection"),
]
