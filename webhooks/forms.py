"""What people say of endpoints, and what the list of deliveries is narrowed to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any
from uuid import uuid4

from django import forms
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.forms import OVERLAPS
from accounts.models import Environment, Tenant
from webhooks.catalogue import TYPES
from webhooks.models import DeliveryStatus, WebhookDelivery, WebhookEndpoint

KEPT = "***"  # in place of a header's value: leave it as it is
MINUTES = "%Y-%m-%dT%H:%M"


class EndpointForm(forms.Form):
    """What may be changed of an endpoint."""

    url = forms.CharField(label=_("URL"), max_length=2000, widget=forms.URLInput)
    description = forms.CharField(
        label=_("Description"), max_length=120, required=False, help_text=_("For your team, such as CRM.")
    )
    project = forms.ModelChoiceField(
        WebhookEndpoint.objects.none(), label=_("Project"), required=False, empty_label=_("All projects")
    )
    types = forms.MultipleChoiceField(
        label=_("Events"),
        choices=[(name, name) for name in TYPES],
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )
    headers = forms.CharField(
        label=_("Headers"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "placeholder": "X-Api-Key: …"}),
        help_text=_("Sent with every request, one to a line. Values are kept encrypted and not shown again."),
    )

    def __init__(
        self, data: Any, *, tenant: Tenant, kept: Mapping[str, str] | None = None, initial: Any = None
    ) -> None:
        super().__init__(data, initial=initial)
        self._kept = dict(kept or {})
        self.fields["project"].queryset = tenant.projects.order_by("name")  # type: ignore[attr-defined]

    def groups(self) -> Iterator[tuple[str, list[Any]]]:
        """The checkboxes of events by what they are about: the part before the dot."""
        about = groupby(self["types"], key=lambda choice: str(choice.data["value"]).partition(".")[0])
        return ((name, list(choices)) for name, choices in about)

    def clean_headers(self) -> dict[str, str]:
        """Names to values; a value that was left hidden stays what it was."""
        headers = {}
        for line in self.cleaned_data["headers"].splitlines():
            if not line.strip():
                continue
            name, colon, value = (part.strip() for part in line.partition(":"))
            if not colon:
                raise forms.ValidationError(_("Write each as a name, a colon and a value."))
            headers[name] = self._kept.get(name, value) if value == KEPT else value
        return headers


class NewEndpointForm(EndpointForm):
    """`once` is drawn with the empty form, so that sending it twice makes one endpoint."""

    environment = forms.ChoiceField(
        label=_("Environment"),
        choices=Environment.choices,
        initial=Environment.TEST,
        widget=forms.RadioSelect,
    )
    once = forms.UUIDField(widget=forms.HiddenInput, initial=uuid4)


def current(endpoint: WebhookEndpoint) -> dict[str, Any]:
    """An endpoint as EndpointForm shows it, header values hidden."""
    hidden = "\n".join(f"{name}: {KEPT}" for name in endpoint.headers)
    fields = ("url", "description", "project", "types")
    return {name: getattr(endpoint, name) for name in fields} | {"headers": hidden}


class RotationForm(forms.Form):
    overlap = forms.TypedChoiceField(
        label=_("The old secret ends"),
        choices=OVERLAPS,
        coerce=lambda seconds: timedelta(seconds=int(seconds)),
        initial=86_400,
        widget=forms.RadioSelect,
    )


class TestForm(forms.Form):
    __test__ = False  # not one of pytest's

    type = forms.ChoiceField(
        label=_("Example to send"), choices=[(name, name) for name in TYPES], initial="message.delivered"
    )


class ReplayForm(forms.Form):
    """Which time to deliver again, in the tenant's time zone."""

    since = forms.DateTimeField(
        label=_("From"), widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format=MINUTES)
    )
    until = forms.DateTimeField(
        label=_("To"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format=MINUTES),
        help_text=_("Until now, unless given."),
    )
    everything = forms.TypedChoiceField(
        label=_("What"),
        choices=[
            ("no", _("What failed, and what the endpoint was never told")),
            ("yes", _("Everything, also what arrived")),
        ],
        coerce=lambda answer: answer == "yes",
        widget=forms.RadioSelect,
    )

    def __init__(self, data: Any, *, now: datetime) -> None:
        yesterday = timezone.localtime(now) - timedelta(days=1)
        super().__init__(
            data, initial={"since": yesterday.replace(second=0, microsecond=0), "everything": "no"}
        )


class VerifyForm(forms.Form):
    """A request as a program received it."""

    headers = forms.CharField(
        label=_("Headers"),
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "placeholder": "webhook-id: evt_…"}),
        help_text=_("The three that begin with webhook-, one to a line."),
    )
    body = forms.CharField(
        label=_("Body"),
        max_length=1_000_000,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 6, "spellcheck": "false"}),
        help_text=_("Exactly as it came. Parsed and written again it is another."),
    )

    def clean_headers(self) -> dict[str, str]:
        lines = (line.partition(":") for line in self.cleaned_data["headers"].splitlines())
        return {name.strip(): value.strip() for name, _colon, value in lines}

    def clean_body(self) -> str:
        """Browsers send every line end as CR LF; a payload of ours has none."""
        body: str = self.cleaned_data["body"]
        return body.replace("\r\n", "\n").rstrip("\n")


class DeliveryFilter(forms.Form):
    """A filter that is not valid narrows nothing."""

    status = forms.ChoiceField(
        label=_("Status"), choices=[("", _("Any status")), *DeliveryStatus.choices], required=False
    )
    type = forms.ChoiceField(
        label=_("Event"), choices=[("", _("Any event")), *((name, name) for name in TYPES)], required=False
    )

    def __init__(self, data: Any, *, endpoint: WebhookEndpoint) -> None:
        super().__init__(data, use_required_attribute=False)
        self._endpoint = endpoint
        self.is_valid()

    @property
    def narrowed(self) -> bool:
        return any(self.cleaned_data.values())

    def deliveries(self) -> QuerySet[WebhookDelivery]:
        """The endpoint's deliveries that match, newest first."""
        rows = self._endpoint.deliveries.select_related("event").defer("log", "event__data").order_by("-id")
        if status := self.cleaned_data.get("status"):
            rows = rows.filter(status=status)
        if kind := self.cleaned_data.get("type"):
            rows = rows.filter(event__type=kind)
        return rows
