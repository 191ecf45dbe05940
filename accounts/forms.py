"""Forms about people, tenants and their keys."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import Any
from uuid import uuid4

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from unfold.forms import UserChangeForm, UserCreationForm

from accounts.models import Environment, Project, Scope, Tenant, User

LONGEST = timedelta(days=3653)  # ten years
# How long a key works beside its successor, in seconds.
OVERLAPS = [(0, _("Now")), (3600, _("In 1 hour")), (86_400, _("In 24 hours")), (604_800, _("In 7 days"))]


class TenantChoice(forms.Form):
    tenant = forms.IntegerField()


class NewKeyForm(forms.Form):
    """What `keys.issue` takes; `once` is drawn with the empty form, so that sending it twice issues one key."""

    name = forms.CharField(
        label=_("Name"), max_length=80, help_text=_("The program that will use it, such as online shop.")
    )
    project = forms.ModelChoiceField(Project.objects.none(), label=_("Project"))
    environment = forms.ChoiceField(
        label=_("Environment"),
        choices=Environment.choices,
        initial=Environment.TEST,
        widget=forms.RadioSelect,
    )
    scopes = forms.MultipleChoiceField(
        label=_("What it may do"),
        choices=Scope.choices,
        initial=[Scope.MESSAGES_READ, Scope.MESSAGES_WRITE],
        widget=forms.CheckboxSelectMultiple,
    )
    expires_at = forms.DateField(label=_("Last day"), required=False)
    once = forms.UUIDField(widget=forms.HiddenInput, initial=uuid4)

    def __init__(self, data: Any, *, tenant: Tenant, now: datetime) -> None:
        super().__init__(data)
        self.first = timezone.localdate(now)
        self.last = self.first + LONGEST
        self.projects = list(tenant.projects.order_by("name"))
        self.fields["project"].queryset = tenant.projects.order_by("name")  # type: ignore[attr-defined]
        if len(self.projects) == 1:
            self.fields["project"].initial = self.projects[0]
        days = {"type": "date", "min": self.first.isoformat(), "max": self.last.isoformat()}
        self.fields["expires_at"].widget = forms.DateInput(attrs=days, format="%Y-%m-%d")

    def clean_expires_at(self) -> datetime | None:
        """The end of the day, in the current time zone."""
        day: date | None = self.cleaned_data["expires_at"]
        if day is None:
            return None
        if not self.first <= day <= self.last:
            raise forms.ValidationError(_("Choose a day between today and ten years from now."))
        return timezone.make_aware(datetime.combine(day, time.max))


class RotationForm(forms.Form):
    overlap = forms.TypedChoiceField(
        label=_("The old key ends"),
        choices=OVERLAPS,
        coerce=lambda seconds: timedelta(seconds=int(seconds)),
        initial=86_400,
        widget=forms.RadioSelect,
    )


class NewUserForm(UserCreationForm):
    """Staff make a person: an e-mail address and a first password."""

    class Meta:
        model = User
        fields = ("email", "name")


class UserForm(UserChangeForm):
    class Meta:
        model = User
        fields = "__all__"
