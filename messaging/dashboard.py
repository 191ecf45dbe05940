"""The dashboard's pages about messages: today's figures, the list, one message with its timeline, and the queues."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Q, QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from accounts.models import Environment, Tenant
from accounts.tenancy import MemberRequest, member_view
from instances.dashboard import Card, cards
from instances.models import Instance, InstanceStatus
from messaging import queue_pages
from messaging.forecasting import for_waiting
from messaging.forms import MessageFilter, midnight
from messaging.models import Message, MessageEvent, Status
from messaging.status import FINAL
from messaging.timeline import steps
from messaging.waiting import explain
from pilot.live import Live

PAGE = 50
LIST_EVERY, MESSAGE_EVERY = 5, 2  # seconds between looks at what still moves
SHOWN = (
    "to",
    "status",
    "category",
    "environment",
    "created_at",
    "failure_code",
    "instance__name",
    "template_version__number",
    "template_version__template__name",
)


@require_safe
@member_view()
def home(request: MemberRequest) -> HttpResponse:
    """Today's figures in numbers, and the instances that need someone."""
    context = {"today": today(request.tenant), "troubled": _troubled(request.tenant)}
    return render(request, "dashboard/home.html", context)


def today(tenant: Tenant) -> dict[str, int]:
    """What became of the live messages accepted since midnight, and how many wait now."""
    mine = Message.objects.filter(tenant=tenant, environment=Environment.LIVE)
    figures = mine.filter(created_at__gte=midnight(timezone.localdate())).aggregate(
        accepted=Count("id"),
        delivered=Count("id", Q(status__in=[Status.DELIVERED, Status.READ, Status.PLAYED])),
        failed=Count("id", Q(status=Status.FAILED)),
    )
    return figures | {"waiting": mine.filter(status=Status.QUEUED).count()}


@require_safe
@vary_on_headers("HX-Request", "HX-Target")
@member_view()
def message_list(request: MemberRequest) -> HttpResponse:
    """The tenant's messages, newest first; only the rows when htmx asks for them."""
    narrowing = MessageFilter(request.GET, tenant=request.tenant, now=timezone.now())
    context = _rows(request, narrowing)
    moving = not context["newest"] and any(row.status not in FINAL for row in context["rows"])
    rows = Live(
        name="messages",
        template="dashboard/_messages.html",
        url=_link(request, before=request.GET.get("before", "")),
        every=LIST_EVERY if moving else 0,
    )
    if request.headers.get("HX-Target") == rows.name:
        return rows.answer(request, context)
    page = {"filter": narrowing, "rows": rows.render(request, context)}
    return render(request, "dashboard/messages.html", page)


@require_safe
@member_view()
def message_detail(request: MemberRequest, message_id: str) -> HttpResponse:
    """One message: what it says, what became of it, and why it still waits."""
    message = _message(request, message_id)
    fragment = _progress(message).render(request, _context(message))
    return render(request, "dashboard/message.html", {"message": message, "progress": fragment})


@require_safe
@member_view()
def message_progress(request: MemberRequest, message_id: str) -> HttpResponse:
    """The part of a message's page that changes."""
    message = _message(request, message_id)
    return _progress(message).answer(request, _context(message))


def _rows(request: MemberRequest, narrowing: MessageFilter) -> dict[str, Any]:
    """A page of the list, and the links to the one below and to the top."""
    above = Message.objects.filter(tenant=request.tenant, id=request.GET.get("before", "")).first()
    rows = list(_below(above, narrowing.messages())[: PAGE + 1])
    return {
        "filter": narrowing,
        "rows": rows[:PAGE],
        "older": _link(request, before=rows[PAGE - 1].id) if len(rows) > PAGE else "",
        "newest": _link(request) if above else "",
    }


def _below(above: Message | None, rows: QuerySet[Message]) -> QuerySet[Message]:
    rows = rows.select_related("instance", "template_version__template").only(*SHOWN)
    if above:
        same_moment = Q(created_at=above.created_at, id__lt=above.id)
        # The second condition is implied, and is what the index can use.
        rows = rows.filter(Q(created_at__lt=above.created_at) | same_moment, created_at__lte=above.created_at)
    return rows.order_by("-created_at", "-id")


def _link(request: MemberRequest, *, before: str = "") -> str:
    """The list's address with its filters, from the row `before` on or from the top."""
    query = request.GET.copy()
    for name in ("before", "seen"):
        query.pop(name, None)
    if before:
        query["before"] = before
    return f"{reverse('dashboard:messages')}?{query.urlencode()}"


def _troubled(tenant: Tenant) -> list[Card]:
    fine = Q(status=InstanceStatus.OPEN, paused=False) | Q(status=InstanceStatus.REMOVED)
    return cards(Instance.objects.filter(~fine, tenant=tenant))


def _message(request: MemberRequest, message_id: str) -> Message:
    mine = Message.objects.filter(tenant=request.tenant).defer(
        "instance__credentials", "instance__hook_token"
    )
    return get_object_or_404(
        mine.select_related("project", "instance__lane", "template_version__template"), id=message_id
    )


def _progress(message: Message) -> Live:
    url = reverse("dashboard:message_progress", args=[message.id])
    every = 0 if message.status in FINAL else MESSAGE_EVERY
    return Live(name="progress", template="dashboard/_progress.html", url=url, every=every)


def _context(message: Message) -> dict[str, Any]:
    events = MessageEvent.objects.filter(message=message).order_by("at", "id")
    instance, lane, now = message.instance, message.instance.lane, timezone.now()
    queued = message.status == Status.QUEUED
    return {
        "message": message,
        "steps": steps(events, since=message.created_at),
        "why": explain(message, instance=instance, lane=lane, now=now),
        "forecast": for_waiting(message, instance=instance, lane=lane, now=now) if queued else None,
    }


urlpatterns = [
    path("", home, name="home"),
    path("messages", message_list, name="messages"),
    path("messages/<str:message_id>", message_detail, name="message"),
    path("messages/<str:message_id>/progress", message_progress, name="message_progress"),
    *queue_pages.urlpatterns,
]
