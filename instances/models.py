"""A connected number and the server that connects it."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import BaseValidator, MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.models import Project, Tenant
from instances.graph_models import MetaApp, MetaTemplate, UploadedMedia
from instances.providers.base import Account
from pilot.encryption import EncryptedJSONField, EncryptedTextField

__all__ = ["MetaApp", "MetaTemplate", "UploadedMedia"]  # models of this app, beside those below

LONGEST_PACE_SECONDS = 3600
LONGEST_URGENT_GAP_SECONDS = 600
MOST_A_DAY = 1_000_000
MOST_AT_ONCE, MOST_AT_ONCE_HOSTED = 1000, 5
LONGEST_TYPING_MS = 5000


def _seconds_up_to(most: int) -> list[BaseValidator]:
    return [MinValueValidator(0), MaxValueValidator(most)]


class EvolutionServer(models.Model):
    """One Evolution API server. New instances go to the least loaded one with room."""

    name = models.CharField(_("name"), max_length=60, unique=True)
    url = models.URLField(_("URL"), max_length=200)
    api_key = EncryptedTextField(_("global API key"))
    # Evolution gets slow from about 80 instances on (facts: its public issues 2555, 1883).
    capacity = models.PositiveIntegerField(_("capacity"), default=50)
    accepts_new = models.BooleanField(_("accepts new instances"), default=True)
    created_at = models.DateTimeField(_("created"), default=timezone.now)

    class Meta:
        verbose_name = _("Evolution server")
        verbose_name_plural = _("Evolution servers")

    def __str__(self) -> str:
        return self.name


class InstanceStatus(models.TextChoices):
    """See instances/status.py for who may become what."""

    CREATED = "created", _("Not connected yet")
    CONNECTING = "connecting", _("Connecting")
    OPEN = "open", _("Connected")
    DEGRADED = "degraded", _("Not delivering")
    CLOSED = "closed", _("Disconnected")
    REMOVED = "removed", _("Removed")


class Provider(models.TextChoices):
    """Who carries an instance's messages: a key of instances.providers.PROVIDERS."""

    EVOLUTION = "evolution", _("Evolution API")
    META = "meta", _("WhatsApp Cloud API")
    INSTAGRAM = "instagram", _("Instagram")
    SIMULATOR = "simulator", _("Simulator")


class Instance(models.Model):
    """A WhatsApp number (or another account) that messages are sent from."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="instances")
    name = models.SlugField(_("name"), max_length=60)
    provider = models.CharField(
        _("provider"), max_length=20, choices=Provider.choices, default=Provider.EVOLUTION
    )
    server = models.ForeignKey(
        EvolutionServer, models.PROTECT, null=True, blank=True, related_name="instances"
    )
    provider_name = models.CharField(_("name at the provider"), max_length=40, unique=True)
    app = models.ForeignKey(
        MetaApp, models.PROTECT, null=True, blank=True, related_name="instances", verbose_name=_("Meta app")
    )
    account_id = models.CharField(_("account id"), max_length=40, blank=True)  # phone number id, Instagram id
    business_id = models.CharField(_("business id"), max_length=40, blank=True)  # WABA, Facebook page
    credentials = EncryptedJSONField(default=dict, blank=True)
    hook_token = EncryptedTextField(editable=False)
    hook_digest = models.CharField(max_length=64, unique=True, editable=False)
    status = models.CharField(
        _("status"), max_length=12, choices=InstanceStatus.choices, default=InstanceStatus.CREATED
    )
    status_reason = models.CharField(_("reason"), max_length=200, blank=True)
    status_changed_at = models.DateTimeField(_("since"), default=timezone.now)
    paused = models.BooleanField(_("paused"), default=False)
    number = models.CharField(_("number"), max_length=20, blank=True)  # E.164
    owner_id = models.CharField(_("provider's own id"), max_length=140, blank=True)
    profile_name = models.CharField(_("profile name"), max_length=120, blank=True)
    created_at = models.DateTimeField(_("created"), default=timezone.now)

    # pairing
    qr_code = models.TextField(blank=True, editable=False)
    pairing_code = models.CharField(max_length=20, blank=True, editable=False)
    qr_count = models.PositiveSmallIntegerField(default=0, editable=False)
    qr_expires_at = models.DateTimeField(null=True, editable=False)

    # when instances/health.py last asked the provider
    state_checked_at = models.DateTimeField(null=True, editable=False)
    hook_checked_at = models.DateTimeField(null=True, editable=False)
    health_checked_at = models.DateTimeField(null=True, editable=False)
    templates_fetched_at = models.DateTimeField(null=True, editable=False)
    validated_at = models.DateTimeField(null=True, editable=False)

    # how it sends
    pace_least_seconds = models.FloatField(
        _("shortest gap (s)"), default=30, validators=_seconds_up_to(LONGEST_PACE_SECONDS)
    )
    pace_most_seconds = models.FloatField(
        _("longest gap (s)"), default=46, validators=_seconds_up_to(LONGEST_PACE_SECONDS)
    )
    urgent_gap_seconds = models.FloatField(
        _("gap after an urgent one (s)"), default=2, validators=_seconds_up_to(LONGEST_URGENT_GAP_SECONDS)
    )
    concurrency = models.PositiveSmallIntegerField(
        _("sends at once"), default=1, validators=[MinValueValidator(1), MaxValueValidator(MOST_AT_ONCE)]
    )
    # Where set, the rate of the provider counts instead of the pace.
    messages_per_second = models.PositiveSmallIntegerField(
        _("messages per second"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(MOST_AT_ONCE)],
    )
    daily_cap = models.PositiveIntegerField(
        _("most a day"), null=True, blank=True, validators=[MaxValueValidator(MOST_A_DAY)]
    )
    # A new number that sends much is banned: from this day on it may send a little more each day (messaging/gates.py).
    warm_up_from = models.DateField(_("warming up since"), null=True, blank=True)
    typing_ms = models.PositiveIntegerField(
        _("typing (ms)"), default=1200, validators=[MaxValueValidator(LONGEST_TYPING_MS)]
    )
    link_preview = models.BooleanField(_("link preview"), default=False)
    # A message to itself now and then, to see that it delivers (messaging/canaries.py).
    canary = models.BooleanField(_("canary"), default=False)
    # Buttons of Evolution 2.3 return 201 and are often never shown (its public issues 2404, 1515).
    buttons_as_text = models.BooleanField(_("buttons as numbered text"), default=True)

    class Meta:
        verbose_name = _("instance")
        verbose_name_plural = _("instances")
        constraints = [
            models.UniqueConstraint(
                "tenant",
                "name",
                name="instance_name_unique",
                condition=~models.Q(status=InstanceStatus.REMOVED),
            ),
            models.UniqueConstraint(
                "tenant",
                name="instance_simulator_unique",
                condition=models.Q(provider=Provider.SIMULATOR) & ~models.Q(status=InstanceStatus.REMOVED),
            ),
            models.CheckConstraint(
                condition=models.Q(status__in=InstanceStatus.values), name="instance_status_known"
            ),
            models.CheckConstraint(
                condition=models.Q(pace_least_seconds__lte=models.F("pace_most_seconds")),
                name="instance_pace_ordered",
            ),
            # A number on somebody's phone is banned for more; Meta's own API is made for it.
            models.CheckConstraint(
                condition=models.Q(concurrency__range=(1, MOST_AT_ONCE_HOSTED))
                | (~models.Q(provider=Provider.EVOLUTION) & models.Q(concurrency__range=(1, MOST_AT_ONCE))),
                name="instance_concurrency_range",
            ),
            models.CheckConstraint(
                condition=models.Q(messages_per_second__range=(1, MOST_AT_ONCE)), name="instance_rate_range"
            ),
            models.UniqueConstraint(  # who a webhook is about
                "app",
                "account_id",
                name="instance_account_unique",
                condition=~models.Q(account_id="") & ~models.Q(status=InstanceStatus.REMOVED),
            ),
            # Numbers that no timestamp can be made of would stop everybody who reads them.
            models.CheckConstraint(
                condition=models.Q(
                    pace_least_seconds__gte=0,
                    pace_most_seconds__lte=LONGEST_PACE_SECONDS,
                    urgent_gap_seconds__range=(0, LONGEST_URGENT_GAP_SECONDS),
                    typing_ms__lte=LONGEST_TYPING_MS,
                ),
                name="instance_waits_bounded",
            ),
            models.CheckConstraint(
                condition=models.Q(daily_cap__lte=MOST_A_DAY), name="instance_daily_cap_bounded"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def account(self) -> Account:
        """What a provider needs to know of this instance, without the row."""
        base_url, api_key = self._endpoint()
        return Account(
            name=self.provider_name,
            base_url=base_url,
            api_key=api_key,
            credentials=self.credentials,
            account_id=self.account_id,
            business_id=self.business_id,
            link_preview=self.link_preview,
            buttons_as_text=self.buttons_as_text,
        )

    def _endpoint(self) -> tuple[str, str]:
        """Where its provider is asked, and with which key."""
        if self.server:
            return self.server.url, self.server.api_key
        host = self.credentials.get("host", settings.META_GRAPH_URL)
        return f"{host}/{settings.META_GRAPH_VERSION}", self.credentials.get("token", "")


class Lane(models.Model):
    """The narrow hot row of an instance: what is in flight and when the next send may start.

    Apart from Instance, because it changes at every send. Written by messaging/claiming.py and settling.py.
    """

    instance = models.OneToOneField(Instance, models.CASCADE, primary_key=True, related_name="lane")
    in_flight = models.SmallIntegerField(default=0)
    next_send_at = models.DateTimeField(default=timezone.now)
    next_urgent_at = models.DateTimeField(default=timezone.now)
    held_by = models.CharField(
        max_length=20, blank=True
    )  # the gate that is closed now, beside pace and concurrency
    held_until = models.DateTimeField(null=True)
    turn = models.FloatField(default=0)  # the fair queue's clock, see messaging.models.ProjectTurn
    sent_on = models.DateField(null=True)
    sent_count = models.PositiveIntegerField(default=0)  # on that day of the tenant's calendar

    def __str__(self) -> str:
        return f"lane {self.instance_id}"


class Vitals(models.Model):
    """When an instance last showed that it lives: by a call of its webhook, and by a receipt for a message.

    Apart from Instance and Lane, because it changes with every batch of receipts.
    """

    instance = models.OneToOneField(Instance, models.CASCADE, primary_key=True, related_name="vitals")
    heard_at = models.DateTimeField(_("last call"), null=True)
    acknowledged_at = models.DateTimeField(_("last receipt"), null=True)
    # receipts since the last call that only asking brought, and when the first of them
    unheard = models.PositiveIntegerField(_("receipts only by asking"), default=0)
    unheard_since = models.DateTimeField(null=True, editable=False)
    # the lane's count of sends when the outcomes of its sends were last judged
    judged_at = models.DateTimeField(null=True, editable=False)
    judged_on = models.DateField(null=True, editable=False)
    judged_count = models.PositiveIntegerField(default=0, editable=False)
    # the last canary: a message's id
    canary_id = models.CharField(max_length=64, blank=True, editable=False)
    canary_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        verbose_name = _("signs of life")
        verbose_name_plural = _("signs of life")

    def __str__(self) -> str:
        return f"vitals of {self.instance_id}"


class Breaker(models.Model):
    """The circuit breaker of a provider's endpoint. In the database, so that all processes agree.

    Closed while `open_until` is NULL. Only instances/breaking.py writes it.
    """

    server = models.OneToOneField(EvolutionServer, models.CASCADE, primary_key=True, related_name="breaker")
    failures = models.PositiveIntegerField(_("failures in a row"), default=0)
    open_until = models.DateTimeField(_("open until"), null=True, blank=True)
    probe_until = models.DateTimeField(_("probing until"), null=True, blank=True)
    last_silent = models.BigIntegerField(null=True, editable=False)  # the instance that met the last silence

    class Meta:
        verbose_name = _("circuit breaker")
        verbose_name_plural = _("circuit breakers")

    def __str__(self) -> str:
        return f"breaker of {self.server_id}"


class DefaultInstance(models.Model):
    """The instance a project sends from when a request names none."""

    project = models.OneToOneField(Project, models.CASCADE, primary_key=True, related_name="default_instance")
    instance = models.ForeignKey(Instance, models.CASCADE, related_name="default_of")

    class Meta:
        verbose_name = _("default instance")
        verbose_name_plural = _("default instances")

    def __str__(self) -> str:
        return f"{self.project} → {self.instance}"


class Outage(models.Model):
    """A time in which an instance does not deliver, and what is to be done about it next, and when.

    Only instances/outages.py and health.py write it. While it is open, one row is what makes the alert one.
    """

    class Kind(models.TextChoices):
        DOWN = "down", _("Not connected")
        NOT_DELIVERING = "not_delivering", _("Not delivering")

    instance = models.ForeignKey(Instance, models.CASCADE, related_name="outages", db_index=False)
    kind = models.CharField(_("kind"), max_length=16, choices=Kind.choices)
    reason = models.CharField(_("reason"), max_length=200, blank=True)
    began_at = models.DateTimeField(_("began"))
    restart_at = models.DateTimeField(_("restart due"), null=True)
    restarted_at = models.DateTimeField(_("restarted"), null=True)
    restarts = models.PositiveIntegerField(_("restarts"), default=0)
    recheck_at = models.DateTimeField(_("recheck due"), null=True)
    alerted_at = models.DateTimeField(_("alerted"), null=True)
    ended_at = models.DateTimeField(_("ended"), null=True)

    class Meta:
        verbose_name = _("outage")
        verbose_name_plural = _("outages")
        indexes = [models.Index("instance", models.F("id").desc(), name="outage_list")]
        constraints = [
            models.UniqueConstraint(  # also what finds the open ones: there are few
                "instance", "kind", name="outage_open_once", condition=models.Q(ended_at__isnull=True)
            ),
            models.CheckConstraint(
                condition=models.Q(kind__in=["down", "not_delivering"]), name="outage_kind_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.began_at:%Y-%m-%d %H:%M}"


class InstanceEvent(models.Model):
    """A change of an instance's connection: what an operator reads to see what happened."""

    instance = models.ForeignKey(Instance, models.CASCADE, related_name="events")
    kind = models.CharField(max_length=32)
    detail = models.JSONField(default=dict)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [models.Index(fields=["instance", "-id"], name="instance_event_list")]

    def __str__(self) -> str:
        return f"{self.kind} {self.detail or ''}"


class InstanceHour(models.Model):
    """What an instance did in one hour, in messages. Written by messaging/tallying.py from the event rows."""

    instance = models.ForeignKey(Instance, models.CASCADE, related_name="hours", db_index=False)
    hour = models.DateTimeField()  # its start, UTC
    accepted = models.PositiveIntegerField(default=0)
    sent = models.PositiveIntegerField(default=0)  # the provider took it
    delivered = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint("instance", "hour", name="instance_hour_unique")]

    def __str__(self) -> str:
        return f"{self.instance_id} {self.hour:%Y-%m-%d %H}h"
