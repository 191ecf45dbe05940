"""The page that tells how every queue is, for a tenant's people and for staff, and what may be done about one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy
from django.views.decorators.http import require_http_methods, require_safe
from django.views.decorators.vary import vary_on_headers

from accounts import audit
from accounts.models import Action, Role
from accounts.tenancy import MemberRequest, StaffRequest, member_view, staff_view
from instances import dashboard
from instances.models import Instance
from messaging import purging
from messaging.forms import QueueFilter
from messaging.queues import HOURS, Queue, present, queues, ranked
from pilot.errors import PilotError
from pilot.live import Live

SHOWN = 100  # of the queues, the first by the chosen order
EVERY = 5  # seconds between looks
# The column, its title, and which way its first click sorts.
COLUMNS: tuple[tuple[str, str | Promise, str], ...] = (
    ("name", _("Instance"), ""),
    ("state", _("State"), "-"),
    ("queued", _("Queued"), "-"),
    ("delayed", _("Delayed"), "-"),
    ("in_flight", _("In flight"), "-"),
    ("oldest", _("Oldest"), "-"),
    ("failed", pgettext_lazy("messages", "Failed"), "-"),
    ("sent", _("Sent per hour"), "-"),
    ("next", _("Next send"), ""),
    ("empty", _("Empty in"), "-"),
)
NUMERIC = frozenset({"queued", "delayed", "in_flight", "oldest", "failed"})

PageRequest = MemberRequest | StaffRequest


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that may be done about a queue, as a button."""

    name: str
    title: str | Promise
    icon: str


TOOLS = {
    "pause": Tool("pause", _("Pause"), "paused"),
    "resume": Tool("resume", _("Resume"), "played"),
    "restart": Tool("restart", _("Restart"), "connecting"),
    "purge": Tool("purge", _("Cancel all"), "removed"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A queue, and what may be done about it."""

    queue: Queue
    tools: list[Tool]


@dataclass(frozen=True, slots=True)
class Site:
    """Whose queues are looked at, and where: `name` is the namespace of the addresses, `key` names one instance."""

    name: str
    key: str
    instances: QuerySet[Instance]
    may_act: bool

    @property
    def layout(self) -> str:
        return f"{self.name}/layout.html"

    @property
    def list_url(self) -> str:
        return reverse(f"{self.name}:queues")


@dataclass(frozen=True, slots=True)
class Column:
    """A head of the table: `order` is "ascending", "descending" or empty, `url` sorts by it."""

    name: str
    title: str | Promise
    order: str
    url: str
    numeric: bool


@require_safe
@vary_on_headers("HX-Request", "HX-Target")
@member_view()
def queue_list(request: MemberRequest) -> HttpResponse:
    """The queues of the tenant's instances."""
    return _list(request, _own(request))


@require_http_methods(["GET", "HEAD", "POST"])
@member_view(role=Role.ADMIN)
def queue_action(request: MemberRequest, name: str, action: str) -> HttpResponse:
    """Asks first, then does one of TOOLS."""
    return _act(request, _own(request), name, action)


@require_safe
@vary_on_headers("HX-Request", "HX-Target")
@staff_view(permission="instances.view_instance")
def all_queues(request: StaffRequest) -> HttpResponse:
    """The queues of all tenants."""
    return _list(request, _everybodys(request))


@require_http_methods(["GET", "HEAD", "POST"])
@staff_view(permission="instances.change_instance")
def any_queue_action(request: StaffRequest, key: int, action: str) -> HttpResponse:
    """Asks first, then does one of TOOLS to any tenant's instance."""
    return _act(request, _everybodys(request), key, action)


def _own(request: MemberRequest) -> Site:
    mine = present(Instance.objects.filter(tenant=request.tenant))
    return Site("dashboard", "name", mine, request.may_manage)


def _everybodys(request: StaffRequest) -> Site:
    may_act = request.user.has_perm("instances.change_instance")
    return Site("ops", "pk", present(Instance.objects.all()), may_act)


# --- the list ---------------------------------------------------------------------------------------------


def _list(request: PageRequest, site: Site) -> HttpResponse:
    narrowing = QueueFilter(request.GET)
    rows = Live(name="queues", template="dashboard/_queues.html", url=_link(site, request.GET), every=EVERY)
    context = _rows(site, narrowing, request.GET)
    if request.headers.get("HX-Target") == rows.name:
        return rows.answer(request, context)
    page = {"site": site, "filter": narrowing, "rows": rows.render(request, context)}
    return render(request, "dashboard/queues.html", page)


def _rows(site: Site, narrowing: QueueFilter, query: QueryDict) -> dict[str, Any]:
    rows = queues(_named(site, narrowing.word), now=timezone.now())
    wanted = [row for row in rows if row.troubled] if narrowing.only_troubled else rows
    return {
        "site": site,
        "rows": [Row(row, _tools(row)) for row in ranked(wanted, narrowing.order)[:SHOWN]],
        "matching": len(wanted),
        "narrowed": narrowing.word or narrowing.only_troubled,
        "columns": [_column(site, query, narrowing.order, *column) for column in COLUMNS],
        "asked": _asked(query),
        "totals": totals(rows),
        "hours": HOURS,
    }


def _tools(queue: Queue) -> list[Tool]:
    return [TOOLS[name] for name in ("resume" if queue.instance.paused else "pause", "restart", "purge")]


def _named(site: Site, word: str) -> QuerySet[Instance]:
    if not word:
        return site.instances
    named = Q(name__icontains=word)
    return site.instances.filter(named | Q(tenant__name__icontains=word) if site.name == "ops" else named)


def totals(rows: Iterable[Queue]) -> Mapping[str, Any]:
    """All queues together. `oldest_seconds` is None when nothing waits."""
    rows = list(rows)
    ages = [row.oldest_seconds for row in rows if row.oldest_seconds is not None]
    return {
        "waiting": sum(row.length for row in rows),
        "oldest_seconds": max(ages, default=None),
        "too_old": any(row.too_old for row in rows),
        "sent_per_hour": sum(row.sent_per_hour for row in rows),
        "failed": sum(row.failed for row in rows),
        "troubled": sum(row.troubled for row in rows),
        "instances": len(rows),
    }


def _column(site: Site, query: QueryDict, order: str, name: str, title: str | Promise, first: str) -> Column:
    down = order.startswith("-")
    chosen = order.removeprefix("-") == name
    wanted = (name if down else f"-{name}") if chosen else f"{first}{name}"
    said = ("descending" if down else "ascending") if chosen else ""
    return Column(name, title, said, _link(site, query, sort=wanted), name in NUMERIC)


def _link(site: Site, query: QueryDict, **changes: str) -> str:
    """The list's address with its filters and order."""
    asked = _asked(query, **changes)
    return f"{site.list_url}?{asked}" if asked else site.list_url


def _asked(query: QueryDict, **changes: str) -> str:
    kept = {name: query[name] for name in ("q", "troubled", "sort") if query.get(name)}
    return urlencode(kept | changes)


# --- what is done about one -------------------------------------------------------------------------------


def _act(request: PageRequest, site: Site, key: str | int, action: str) -> HttpResponse:
    if action not in TOOLS:
        raise Http404
    found = site.instances.select_related("server", "tenant")
    instance = get_object_or_404(found, **{site.key: key})
    if request.method != "POST":
        return _ask(request, site, instance, action)
    if action == "purge":
        _purge(request, instance, request.POST.get("seen_at", ""))
    else:
        dashboard.act(request, action, instance)
    return redirect(f"{_link(site, request.GET)}#queue-{instance.pk}")


def _ask(request: PageRequest, site: Site, instance: Instance, action: str) -> HttpResponse:
    now = timezone.now()
    (queue,) = queues(Instance.objects.filter(pk=instance.pk), now=now)
    context = {"queue": queue, "tool": TOOLS[action], "seen_at": now.isoformat()}
    back = _link(site, request.GET)
    return render(request, "dashboard/queue_action.html", context | {"site": site, "back": back})


def _purge(request: PageRequest, instance: Instance, seen_at: str) -> None:
    now = timezone.now()
    try:
        _order_purge(request, instance, _instant(seen_at) or now, now)
    except PilotError as error:
        messages.error(request, error.message)
        return
    messages.success(request, _("Its waiting messages are being cancelled."))


@transaction.atomic
def _order_purge(request: PageRequest, instance: Instance, before: datetime, now: datetime) -> None:
    purge = purging.order(instance=instance, before=before, now=now)
    audit.record(
        tenant=instance.tenant,
        actor=request.user,
        action=Action.QUEUE_PURGED,
        target=instance,
        detail={"messages": purge.total},
    )


def _instant(text: str) -> datetime | None:
    """When the question was shown, as it was sent back; None when that is no instant."""
    try:
        at = parse_datetime(text)
    except ValueError:
        return None
    return at if at and timezone.is_aware(at) else None


urlpatterns = [
    path("queues", queue_list, name="queues"),
    path("queues/<slug:name>/<slug:action>", queue_action, name="queue_action"),
]
ops_urlpatterns = [
    path("queues", all_queues, name="queues"),
    path("queues/<int:key>/<slug:action>", any_queue_action, name="queue_action"),
]
