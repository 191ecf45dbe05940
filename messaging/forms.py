"""What the dashboard's lists of messages and of queues are narrowed to."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from typing import Any

from django import forms
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.models import Environment, Tenant
from instances.models import Instance
from messaging.models import Message, Status, Template
from messaging.queues import SORTS

# A part of a number has no index of its own: such a search looks back this far unless a first day is given.
LOOKS_BACK = timedelta(days=30)
ENVIRONMENTS = [(side.value, side.label) for side in (Environment.LIVE, Environment.TEST)]
FURTHER = ("template", "instance", "since", "until")
LAST_DAY = date(9998, 12, 31)  # the calendar ends a year later
DIGITS = re.compile(r"[\d\s().+-]{4,}")

# What a small screen, which has no heads of columns to sort by, offers instead.
ORDERS = (
    ("-queued", _("Most queued")),
    ("-oldest", _("Waiting longest")),
    ("-failed", _("Most failed")),
    ("-empty", _("Empty last")),
    ("name", _("By name")),
)


class MessageFilter(forms.Form):
    """A filter that is not valid narrows nothing, and says so beside its field."""

    environment = forms.ChoiceField(choices=ENVIRONMENTS, required=False)
    q = forms.CharField(label=_("Number or id"), required=False, max_length=128)
    status = forms.ChoiceField(label=_("Status"), required=False)
    template = forms.ModelChoiceField(Template.objects.none(), label=_("Template"), required=False)
    instance = forms.ModelChoiceField(Instance.objects.none(), label=_("Instance"), required=False)
    since = forms.DateField(label=_("From day"), required=False)
    until = forms.DateField(label=_("To day"), required=False)

    def __init__(self, data: Any, *, tenant: Tenant, now: datetime) -> None:
        super().__init__(data, use_required_attribute=False)
        self.tenant = tenant
        self.now = now
        self._offer("status", choices=[("", _("Any status")), *Status.choices])
        self._offer("template", queryset=_named(Template, tenant), empty_label=_("Any template"))
        self._offer("instance", queryset=_named(Instance, tenant), empty_label=_("Any instance"))
        for name in ("since", "until"):
            self.fields[name].widget = forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
        self.is_valid()

    @property
    def side(self) -> str:
        """The environment that is shown."""
        return self.cleaned_data.get("environment") or Environment.LIVE

    @property
    def narrowed(self) -> bool:
        """Whether anything but the environment was asked for."""
        return any(value for name, value in self.cleaned_data.items() if name != "environment")

    @property
    def further(self) -> list[forms.BoundField]:
        """The fields that the page folds away."""
        return [self[name] for name in FURTHER]

    @property
    def narrowed_further(self) -> bool:
        """Whether one of the folded fields is in use, or wrong."""
        return any(self.cleaned_data.get(name) or name in self.errors for name in FURTHER)

    @property
    def looks_back(self) -> bool:
        """Whether the search was limited to the recent past."""
        return bool(self._digits) and not self.cleaned_data.get("since")

    def messages(self) -> QuerySet[Message]:
        """The tenant's messages that match."""
        given = {name: value for name, value in self.cleaned_data.items() if value}
        rows = Message.objects.filter(tenant=self.tenant, environment=self.side)
        if "status" in given:
            rows = rows.filter(status=given["status"])
        if "template" in given:
            rows = rows.filter(template_version__template=given["template"])
        if "instance" in given:
            rows = rows.filter(instance=given["instance"])
        if "since" in given:
            rows = rows.filter(created_at__gte=midnight(given["since"]))
        if "until" in given:
            rows = rows.filter(created_at__lt=midnight(min(given["until"], LAST_DAY) + timedelta(days=1)))
        return self._search(rows, given.get("q", ""))

    @property
    def _digits(self) -> str:
        """The digits of what looks like a part of a telephone number."""
        q = self.cleaned_data.get("q", "")
        return re.sub(r"\D", "", q) if DIGITS.fullmatch(q) else ""

    def _search(self, rows: QuerySet[Message], q: str) -> QuerySet[Message]:
        if not q:
            return rows
        if not self._digits:
            return rows.filter(Q(id=q) | Q(provider_message_id=q))
        if self.looks_back:
            rows = rows.filter(created_at__gte=self.now - LOOKS_BACK)
        return rows.filter(to__contains=self._digits)

    def _offer(self, name: str, **attributes: Any) -> None:
        for attribute, value in attributes.items():
            setattr(self.fields[name], attribute, value)


class QueueFilter(forms.Form):
    """Which queues, and in which order; what is not valid narrows nothing."""

    q = forms.CharField(label=_("Name"), required=False, max_length=60)
    troubled = forms.BooleanField(label=_("Only with trouble"), required=False)
    sort = forms.CharField(required=False)

    def __init__(self, data: Any) -> None:
        super().__init__(data, use_required_attribute=False)
        self.is_valid()

    @property
    def word(self) -> str:
        """A part of the name."""
        return self.cleaned_data.get("q", "")

    @property
    def only_troubled(self) -> bool:
        return self.cleaned_data.get("troubled", False)

    @property
    def order(self) -> str:
        """A name of messaging.queues.SORTS, with a minus for the largest first."""
        asked = self.cleaned_data.get("sort", "")
        return asked if asked.removeprefix("-") in SORTS else ORDERS[0][0]

    @property
    def orders(self) -> list[tuple[str, Any, bool]]:
        """What to offer, and whether it is chosen; an order that only the heads of columns give stands first."""
        offered = [(order, said, order == self.order) for order, said in ORDERS]
        return offered if any(chosen for *_order, chosen in offered) else [(self.order, "–", True), *offered]


def midnight(day: date) -> datetime:
    """When `day` begins in the current time zone."""
    return timezone.make_aware(datetime.combine(day, time.min))


def _named(model: Any, tenant: Tenant) -> QuerySet[Any]:
    return model.objects.filter(tenant=tenant).only("name").order_by("name")
