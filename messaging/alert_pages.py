"""The dashboard's page about alerts: what needs someone, what needed someone, and how the person is told."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST, require_safe

from accounts.alerting import language_of
from accounts.models import Role, User
from accounts.tenancy import MemberRequest, member_view
from messaging.numbers import InvalidNumber, normalise
from pilot.alerts import of_tenant

PAGE = 50


class AlertSettingsForm(forms.ModelForm):  # type: ignore[type-arg]
    """How one person is told. There is a number only where alerts go out by WhatsApp."""

    alert_number = forms.CharField(
        label=_("WhatsApp for alerts"),
        max_length=30,
        required=False,
        widget=forms.TextInput(attrs={"type": "tel", "autocomplete": "tel"}),
        help_text=_("Pilot writes to it about trouble with your instances, and about nothing else."),
    )
    alert_language = forms.ChoiceField(label=_("Language"), choices=settings.LANGUAGES)

    class Meta:
        model = User
        fields = ("alert_number", "alert_language")

    def __init__(self, data: Any, *, user: User) -> None:
        super().__init__(data, instance=user, initial={"alert_language": language_of(user)})
        if not settings.ALERT_WHATSAPP_INSTANCE:
            del self.fields["alert_number"]

    def clean_alert_number(self) -> str:
        """The number in E.164, or none."""
        written = self.cleaned_data["alert_number"]
        try:
            return normalise(written, field="alert_number") if written else ""
        except InvalidNumber as error:
            raise forms.ValidationError(error.fields["alert_number"]) from error


@require_safe
@member_view()
def alert_list(request: MemberRequest) -> HttpResponse:
    """The tenant's alerts: the past ones newest first, from the one with the id `before` on."""
    return _list(request, AlertSettingsForm(None, user=request.user))


@require_POST
@member_view(role=Role.ADMIN)
def alert_settings(request: MemberRequest) -> HttpResponse:
    """Keeps how the person wants to be told; only those who manage the tenant are told at all."""
    form = AlertSettingsForm(request.POST, user=request.user)
    if not form.is_valid():
        return _list(request, form)
    form.save()
    messages.success(request, _("Saved."))
    return redirect("dashboard:alerts")


def _list(request: MemberRequest, form: AlertSettingsForm) -> HttpResponse:
    past = of_tenant(request.tenant.pk).filter(recovered_at__isnull=False).order_by("-id")
    before = request.GET.get("before", "")
    if before.isdecimal() and len(before) < 19:
        past = past.filter(pk__lt=int(before))
    rows = list(past[: PAGE + 1])
    context = {
        "past": rows[:PAGE],
        "older": rows[PAGE - 1].pk if len(rows) > PAGE else None,
        "form": form,
        "by_mail": bool(settings.EMAIL_URL),
    }
    return render(request, "dashboard/alerts.html", context)


urlpatterns = [
    path("alerts", alert_list, name="alerts"),
    path("alert-settings", alert_settings, name="alert_settings"),
]
