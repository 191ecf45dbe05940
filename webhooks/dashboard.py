"""The dashboard's pages about customers' endpoints. A secret is in the one page that answers its making."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import QuerySet
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from accounts.models import Role
from accounts.tenancy import MemberRequest, member_view
from pilot.errors import PilotError
from pilot.live import Live
from webhooks import changing, deliveries, endpoints, payloads, signing
from webhooks.catalogue import ENVELOPE, TYPES
from webhooks.forms import (
    DeliveryFilter,
    EndpointForm,
    NewEndpointForm,
    ReplayForm,
    RotationForm,
    TestForm,
    VerifyForm,
    current,
)
from webhooks.models import DeliveryStatus, DisabledBy, WebhookDelivery, WebhookEndpoint

PAGE = 50
REPLAYS = 5
LOG_EVERY, DELIVERY_EVERY = 5, 2  # seconds between looks at what still moves
ICONS: Mapping[str, str] = {
    DeliveryStatus.PENDING: "queued",
    DeliveryStatus.DELIVERED: "delivered",
    DeliveryStatus.FAILED: "failed",
}
FINDINGS: Mapping[str, Any] = {
    "valid": _("The signature is right, and the call is fresh."),
    "headers_missing": _("One of webhook-id, webhook-timestamp and webhook-signature is missing."),
    "timestamp_unreadable": _("webhook-timestamp is not a number of seconds."),
    "no_match": _(
        "The signature is not right: body or headers were changed, or another endpoint's secret made it."
    ),
    "too_old": _(
        "The signature is right, but more than five minutes old. Receivers refuse that, to stop replays."
    ),
    "too_new": _("The signature is right, but lies in the future: one of the clocks is wrong."),
}
ERRORS: Mapping[str, Any] = {
    "timeout": _("No answer in time"),
    "unreachable": _("No connection"),
    "tls": _("No secure connection"),
    "cut": _("The connection was cut"),
    "refused": _("The address may not be called"),
    "internal": _("A fault of Pilot's"),
}


@dataclass(frozen=True, slots=True)
class Card:
    """An endpoint at a glance."""

    endpoint: WebhookEndpoint
    icon: str
    label: Any


@require_safe
@member_view(role=Role.ADMIN)
def endpoint_list(request: MemberRequest) -> HttpResponse:
    """Every endpoint of the tenant, those that need someone first."""
    rows = _mine(request).select_related("project").order_by("id")
    found = sorted((card(row) for row in rows), key=lambda one: one.icon not in ("closed", "degraded"))
    return render(request, "dashboard/webhooks.html", {"cards": found})


@require_http_methods(["GET", "HEAD", "POST"])
@member_view(role=Role.ADMIN)
def new_endpoint(request: MemberRequest) -> HttpResponse:
    """Asks where to and what, then makes the endpoint and shows its secret."""
    form = NewEndpointForm(_sent(request), tenant=request.tenant)
    if not form.is_valid():
        return render(request, "dashboard/new_webhook.html", {"form": form})
    try:
        endpoint, secret = changing.create(
            actor=request.user, tenant=request.tenant, now=timezone.now(), **form.cleaned_data
        )
    except endpoints.CreatedBefore as error:
        messages.warning(request, error.message)
        return redirect("dashboard:webhooks")
    except PilotError as error:
        return render(request, "dashboard/new_webhook.html", {"form": _refused(form, error)})
    return render(request, "dashboard/webhook_secret.html", {"endpoint": endpoint, "secret": secret})


@require_safe
@vary_on_headers("HX-Request", "HX-Target")
@member_view(role=Role.ADMIN)
def endpoint_detail(request: MemberRequest, endpoint_id: UUID) -> HttpResponse:
    """An endpoint, how it is, and the log of its deliveries; only the log when htmx asks for it."""
    endpoint = _endpoint(request, endpoint_id)
    narrowing = DeliveryFilter(request.GET, endpoint=endpoint)
    context = _log(request, endpoint, narrowing)
    log = Live(
        name="deliveries",
        template="dashboard/_webhook_deliveries.html",
        url=_link(request, endpoint, before=request.GET.get("before", "")),
        every=0 if context["newest"] else LOG_EVERY,
    )
    if request.headers.get("HX-Target") == log.name:
        return log.answer(request, context)
    page = {
        "card": card(endpoint),
        "filter": narrowing,
        "log": log.render(request, context),
        "test": TestForm(),
        "replays": endpoint.replays.order_by("-id")[:REPLAYS],
    }
    return render(request, "dashboard/webhook.html", page)


@require_http_methods(["GET", "HEAD", "POST"])
@member_view(role=Role.ADMIN)
def edit_endpoint(request: MemberRequest, endpoint_id: UUID) -> HttpResponse:
    """Changes everything but the environment."""
    endpoint = _endpoint(request, endpoint_id)
    form = EndpointForm(
        _sent(request), tenant=request.tenant, kept=endpoint.headers, initial=current(endpoint)
    )
    if form.is_valid():
        try:
            changing.change(endpoint, actor=request.user, **form.cleaned_data)
        except PilotError as error:
            _refused(form, error)
        else:
            messages.success(request, _("Saved."))
            return redirect("dashboard:webhook", endpoint.pk)
    return render(request, "dashboard/edit_webhook.html", {"form": form, "endpoint": endpoint})


@require_http_methods(["GET", "HEAD", "POST"])
@member_view(role=Role.ADMIN)
def rotate_secret(request: MemberRequest, endpoint_id: UUID) -> HttpResponse:
    """Asks when the old secret shall end, then makes the new one and shows it."""
    endpoint, now = _endpoint(request, endpoint_id), timezone.now()
    form = RotationForm(_sent(request))
    if not form.is_valid():
        return render(request, "dashboard/rotate_webhook.html", {"endpoint": endpoint, "form": form})
    overlap = form.cleaned_data["overlap"]
    try:
        secret = changing.rotate(endpoint, actor=request.user, overlap=overlap, now=now)
    except PilotError as error:
        messages.error(request, error.message)
        return redirect("dashboard:webhook", endpoint.pk)
    shown = {"endpoint": endpoint, "secret": secret, "old_ends_at": now + overlap if overlap else None}
    return render(request, "dashboard/webhook_secret.html", shown)


@require_http_methods(["GET", "HEAD", "POST"])
@member_view(role=Role.ADMIN)
def remove_endpoint(request: MemberRequest, endpoint_id: UUID) -> HttpResponse:
    """Asks first, then removes the endpoint for good."""
    endpoint = _endpoint(request, endpoint_id)
    if request.method != "POST":
        return render(request, "dashboard/remove_webhook.html", {"endpoint": endpoint})
    changing.remove(endpoint, actor=request.user, now=timezone.now())
    messages.success(request, _("The webhook was removed."))
    return redirect("dashboard:webhooks")


@require_POST
@member_view(role=Role.ADMIN)
def switch(request: MemberRequest, endpoint_id: UUID, to: str) -> HttpResponse:
    """Switches an endpoint off, or on with what happened meanwhile or without."""
    endpoint, now = _endpoint(request, endpoint_id), timezone.now()
    if to not in ("on", "off"):
        raise Http404
    if to == "off":
        changing.disable(endpoint, actor=request.user, now=now)
        messages.success(request, _("Switched off. What waits there stays."))
    else:
        catch_up = "catch_up" in request.POST
        changing.enable(endpoint, actor=request.user, now=now, catch_up=catch_up)
        messages.success(request, _("Switched on."))
    return redirect("dashboard:webhook", endpoint.pk)


@require_POST
@member_view(role=Role.ADMIN)
def send_test(request: MemberRequest, endpoint_id: UUID) -> HttpResponse:
    """Sends an example and shows what comes of it."""
    endpoint, form = _endpoint(request, endpoint_id), TestForm(request.POST)
    if not form.is_valid():
        raise Http404

    def send() -> HttpResponse:
        delivery = deliveries.send_test(endpoint, type=form.cleaned_data["type"], now=timezone.now())
        return redirect("dashboard:webhook_delivery", endpoint.pk, delivery.pk)

    return _try(request, endpoint, send)


@require_http_methods(["GET", "HEAD", "POST"])
@member_view(role=Role.ADMIN)
def replay(request: MemberRequest, endpoint_id: UUID) -> HttpResponse:
    """Asks which time, then orders it once more."""
    endpoint, now = _endpoint(request, endpoint_id), timezone.now()
    form = ReplayForm(_sent(request), now=now)
    if form.is_valid():
        wanted = form.cleaned_data | {"until": form.cleaned_data["until"] or now}
        try:
            changing.order_replay(endpoint, actor=request.user, now=now, **wanted)
        except PilotError as error:
            _refused(form, error)
        else:
            messages.success(request, _("Ordered. The events go out beside what happens now."))
            return redirect("dashboard:webhook", endpoint.pk)
    return render(request, "dashboard/replay_webhook.html", {"endpoint": endpoint, "form": form})


@require_http_methods(["GET", "HEAD", "POST"])
@member_view(role=Role.ADMIN)
def verify(request: MemberRequest, endpoint_id: UUID) -> HttpResponse:
    """Says what is wrong with a call that a program received."""
    endpoint, now = _endpoint(request, endpoint_id), timezone.now()
    form, finding = VerifyForm(_sent(request)), ""
    if form.is_valid():
        call = form.cleaned_data
        secrets = signing.working(endpoint.secrets, now=now)
        body = call["body"].encode("utf-8", "surrogatepass")
        finding = signing.examine(call["headers"], body, secrets=secrets, now=now)
    shown = {"endpoint": endpoint, "form": form, "finding": finding, "sentence": FINDINGS.get(finding)}
    return render(request, "dashboard/verify_webhook.html", shown)


@require_safe
@member_view(role=Role.ADMIN)
def catalogue(request: MemberRequest) -> HttpResponse:
    """The events that there are."""
    events = [
        {"about": each, "schema": _pretty(each.schema), "example": _pretty(each.example)}
        for each in TYPES.values()
    ]
    return render(request, "dashboard/webhook_events.html", {"events": events, "envelope": _pretty(ENVELOPE)})


# --- one delivery -----------------------------------------------------------------------------------------


@require_safe
@vary_on_headers("HX-Request", "HX-Target")
@member_view(role=Role.ADMIN)
def delivery_detail(request: MemberRequest, endpoint_id: UUID, delivery_id: int) -> HttpResponse:
    """A delivery with its payload and its attempts; only what changes when htmx asks for it."""
    delivery = _delivery(request, endpoint_id, delivery_id)
    part = Live(
        name="delivery",
        template="dashboard/_webhook_delivery.html",
        url=reverse("dashboard:webhook_delivery", args=[endpoint_id, delivery_id]),
        every=DELIVERY_EVERY if delivery.status == DeliveryStatus.PENDING else 0,
    )
    context = {
        "delivery": delivery,
        "icon": ICONS[delivery.status],
        "attempts": [_attempt(entry) for entry in reversed(delivery.log)],
    }
    if request.headers.get("HX-Target") == part.name:
        return part.answer(request, context)
    page = {
        "delivery": delivery,
        "part": part.render(request, context),
        "payload": _pretty(payloads.envelope(delivery.event)),
    }
    return render(request, "dashboard/webhook_delivery.html", page)


@require_POST
@member_view(role=Role.ADMIN)
def resend(request: MemberRequest, endpoint_id: UUID, delivery_id: int) -> HttpResponse:
    """Delivers once more, and shows what comes of it."""
    delivery = _delivery(request, endpoint_id, delivery_id)

    def again() -> HttpResponse:
        deliveries.resend(delivery, now=timezone.now())
        return redirect("dashboard:webhook_delivery", endpoint_id, delivery_id)

    return _try(request, delivery.endpoint, again)


def card(endpoint: WebhookEndpoint) -> Card:
    """The endpoint as it stands."""
    if not endpoint.enabled:
        icon = "paused" if endpoint.disabled_by == DisabledBy.PERSON else "closed"
        return Card(endpoint, icon, pgettext_lazy("webhook", "Off"))
    if endpoint.failing_since:
        return Card(endpoint, "degraded", _("Failing"))
    return Card(endpoint, "open", pgettext_lazy("webhook", "On"))


def _mine(request: MemberRequest) -> QuerySet[WebhookEndpoint]:
    return WebhookEndpoint.present.filter(tenant=request.tenant)


def _endpoint(request: MemberRequest, endpoint_id: UUID) -> WebhookEndpoint:
    return get_object_or_404(_mine(request).select_related("project", "tenant"), pk=endpoint_id)


def _delivery(request: MemberRequest, endpoint_id: UUID, delivery_id: int) -> WebhookDelivery:
    rows = WebhookDelivery.objects.filter(endpoint__in=_mine(request), endpoint=endpoint_id)
    rows = rows.select_related("event__project", "endpoint__tenant")
    return get_object_or_404(rows, pk=min(delivery_id, 2**63 - 1))


def _log(request: MemberRequest, endpoint: WebhookEndpoint, narrowing: DeliveryFilter) -> dict[str, Any]:
    """A page of the log, and the links to the one below and to the top."""
    rows, before = narrowing.deliveries(), request.GET.get("before", "")
    above = int(before) if before.isascii() and before.isdigit() and len(before) < 19 else 0
    if above:
        rows = rows.filter(pk__lt=above)
    page = list(rows[: PAGE + 1])
    return {
        "endpoint": endpoint,
        "filter": narrowing,
        "rows": [(row, ICONS[row.status], ERRORS.get(row.last_error)) for row in page[:PAGE]],
        "older": _link(request, endpoint, before=str(page[PAGE - 1].pk)) if len(page) > PAGE else "",
        "newest": _link(request, endpoint) if above else "",
    }


def _link(request: MemberRequest, endpoint: WebhookEndpoint, *, before: str = "") -> str:
    """The endpoint's address with its filters, from the row `before` on or from the top."""
    query = request.GET.copy()
    for name in ("before", "seen"):
        query.pop(name, None)
    if before:
        query["before"] = before
    return f"{reverse('dashboard:webhook', args=[endpoint.pk])}?{query.urlencode()}"


def _attempt(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An attempt of a delivery's log, as the page shows it."""
    status = entry.get("status")
    return dict(entry) | {
        "icon": "delivered" if status and 200 <= status < 300 else "failed",
        "title": f"HTTP {status}" if status else ERRORS.get(entry.get("error", ""), _("No answer")),
        "sent_at": parse_datetime(entry.get("at") or ""),
    }


def _try(request: MemberRequest, endpoint: WebhookEndpoint, do: Callable[[], HttpResponse]) -> HttpResponse:
    """Does it, or tells the person why it did not work."""
    try:
        return do()
    except PilotError as error:
        messages.error(request, error.message)
        return redirect("dashboard:webhook", endpoint.pk)


def _refused(form: Any, error: PilotError) -> Any:
    """The form with what is wrong beside its fields."""
    for name, faults in error.fields.items():
        form.add_error(name if name in form.fields else None, faults)
    if not error.fields:
        form.add_error(None, error.message)
    return form


def _sent(request: MemberRequest) -> QueryDict | None:
    """The form as sent, or None when it is asked for."""
    return request.POST if request.method == "POST" else None


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


urlpatterns = [
    path("webhooks", endpoint_list, name="webhooks"),
    path("new-webhook", new_endpoint, name="new_webhook"),
    path("webhook-events", catalogue, name="webhook_events"),
    path("webhooks/<uuid:endpoint_id>", endpoint_detail, name="webhook"),
    path("webhooks/<uuid:endpoint_id>/edit", edit_endpoint, name="edit_webhook"),
    path("webhooks/<uuid:endpoint_id>/rotate", rotate_secret, name="rotate_webhook"),
    path("webhooks/<uuid:endpoint_id>/remove", remove_endpoint, name="remove_webhook"),
    path("webhooks/<uuid:endpoint_id>/switch-<slug:to>", switch, name="switch_webhook"),
    path("webhooks/<uuid:endpoint_id>/test", send_test, name="test_webhook"),
    path("webhooks/<uuid:endpoint_id>/replay", replay, name="replay_webhook"),
    path("webhooks/<uuid:endpoint_id>/verify", verify, name="verify_webhook"),
    path(
        "webhooks/<uuid:endpoint_id>/deliveries/<int:delivery_id>", delivery_detail, name="webhook_delivery"
    ),
    path("webhooks/<uuid:endpoint_id>/deliveries/<int:delivery_id>/resend", resend, name="resend_webhook"),
]
