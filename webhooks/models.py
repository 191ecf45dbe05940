"""What crosses the two doors to the outside: calls that providers make to us, and events that we tell to customers."""

from __future__ import annotations

from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.models import Environment, Project, Tenant
from instances.models import Instance, MetaApp
from pilot.encryption import EncryptedJSONField
from pilot.ids import new_id

CONNECTION_UPDATE = "connection.update"
# What a provider calls news of the connection.
CONNECTION_EVENTS = (
    CONNECTION_UPDATE,
    "logout.instance",
    "qrcode.updated",
    "remove.instance",
    "status.instance",
)


class InboundCall(models.Model):
    """One webhook call, stored before anything reads it: a parser's bug can then be replayed.

    It came for one instance, or for an app at Meta, whose calls tell of several.
    """

    instance = models.ForeignKey(
        Instance, models.CASCADE, null=True, blank=True, related_name="calls", db_index=False
    )
    app = models.ForeignKey(
        MetaApp, models.CASCADE, null=True, blank=True, related_name="calls", db_index=False
    )
    event = models.CharField(_("event"), max_length=60, blank=True)
    body = models.BinaryField()
    received_at = models.DateTimeField(_("received"), db_default=Now())
    applied_at = models.DateTimeField(_("applied"), null=True, blank=True)
    error = models.CharField(_("error"), max_length=500, blank=True)

    class Meta:
        verbose_name = _("inbound call")
        verbose_name_plural = _("inbound calls")
        indexes = [
            models.Index(
                fields=["id"], name="inbound_call_pending", condition=models.Q(applied_at__isnull=True)
            ),
            models.Index(fields=["instance", "-id"], name="inbound_call_list"),
            models.Index(  # inbound.receive(): the newest news of a connection
                fields=["instance", "-id"],
                name="inbound_call_connection",
                condition=models.Q(event__in=CONNECTION_EVENTS),
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(instance__isnull=True) ^ models.Q(app__isnull=True),
                name="inbound_call_for_one",
            )
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.received_at:%H:%M:%S}"


def new_endpoint_id() -> UUID:
    """A UUIDv7."""
    return UUID(new_id())


class DisabledBy(models.TextChoices):
    """Who or what switched an endpoint off; empty while it is on."""

    PERSON = "person", _("Switched off")
    GONE = "gone", _("It answered 410 Gone.")
    FAILING = "failing", _("It failed for too long.")


class PresentManager(models.Manager["WebhookEndpoint"]):
    """Endpoints that were not removed."""

    def get_queryset(self) -> models.QuerySet[WebhookEndpoint]:
        return super().get_queryset().filter(removed_at=None)


class WebhookEndpoint(models.Model):
    """Where a tenant wants to be told what happens. Changed only by webhooks/endpoints.py and webhooks/settling.py.

    `secrets` is a list of {"secret", "ends_at": ISO instant or null}, the one to use first, see webhooks/signing.py.
    """

    id = models.UUIDField(primary_key=True, default=new_endpoint_id, editable=False)
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="webhook_endpoints", db_index=False)
    project = models.ForeignKey(  # without one, of all projects
        Project, models.CASCADE, null=True, blank=True, related_name="webhook_endpoints", db_index=False
    )
    environment = models.CharField(_("environment"), max_length=4, choices=Environment.choices)
    url = models.CharField(_("URL"), max_length=2000)
    description = models.CharField(_("description"), max_length=120, blank=True)
    types = ArrayField(models.CharField(max_length=40), verbose_name=_("events"), default=list, blank=True)
    version = models.CharField(_("payload version"), max_length=10, default="1")
    headers = EncryptedJSONField(default=dict, blank=True)
    secrets = EncryptedJSONField(default=list, editable=False)
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    disabled_at = models.DateTimeField(_("disabled"), null=True, blank=True)
    disabled_by = models.CharField(_("why"), max_length=8, choices=DisabledBy.choices, blank=True)

    # how it is: see webhooks/settling.py
    failing_since = models.DateTimeField(_("failing since"), null=True, blank=True)
    silent_calls = models.PositiveIntegerField(_("calls without an answer in a row"), default=0)
    open_until = models.DateTimeField(_("left alone until"), null=True, blank=True)
    succeeded_at = models.DateTimeField(_("last success"), null=True, blank=True)
    once = models.UUIDField(null=True, editable=False)  # the form that was filled in for it
    # It is told of what is announced after these positions: not by the clock, because news may be late.
    messages_after = models.BigIntegerField(default=0, editable=False)
    events_after = models.BigIntegerField(default=0, editable=False)
    # Seen by nobody any more; it goes when its log is gone, which may be long.
    removed_at = models.DateTimeField(null=True, editable=False)

    objects = models.Manager()
    present = PresentManager()

    class Meta:
        verbose_name = _("webhook endpoint")
        verbose_name_plural = _("webhook endpoints")
        indexes = [models.Index(fields=["tenant", "environment", "id"], name="webhook_endpoint_list")]
        constraints = [
            models.UniqueConstraint("tenant", "once", name="webhook_endpoint_once"),
            models.CheckConstraint(
                condition=models.Q(disabled_at__isnull=True, disabled_by="")
                | models.Q(disabled_at__isnull=False, disabled_by__in=DisabledBy.values),
                name="webhook_endpoint_disabled_whole",
            ),
            models.CheckConstraint(
                condition=models.Q(environment__in=Environment.values),
                name="webhook_endpoint_environment_known",
            ),
        ]

    def __str__(self) -> str:
        return self.description or self.url

    @property
    def enabled(self) -> bool:
        return self.disabled_at is None


class WebhookEvent(models.Model):
    """One thing to tell, whoever is told of it. `name` is its id for receivers, made of the row it comes from.

    Kept for tenants that have an endpoint, also for events that none of them asked for: they can be replayed.
    """

    name = models.CharField(max_length=60, unique=True)
    type = models.CharField(_("event"), max_length=40)
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+", db_index=False)
    project = models.ForeignKey(Project, models.CASCADE, null=True, related_name="+", db_index=False)
    environment = models.CharField(max_length=4, choices=Environment.choices, blank=True)
    subject = models.CharField(max_length=64, blank=True)
    sample = models.BooleanField(default=False)  # sent by somebody as a test: nothing has happened
    data = models.JSONField(default=dict)
    at = models.DateTimeField(_("at"))

    class Meta:
        verbose_name = _("webhook event")
        verbose_name_plural = _("webhook events")
        indexes = [models.Index(fields=["tenant", "at", "id"], name="webhook_event_replay")]

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


class DeliveryStatus(models.TextChoices):
    PENDING = "pending", _("Waiting")
    DELIVERED = "delivered", _("Delivered")
    FAILED = "failed", _("Failed")


class WebhookDelivery(models.Model):
    """An event on its way to an endpoint: the row is the job. Its whole state is here; Redis only wakes.

    `untried` until an attempt has come to an end: only then it counts as a retry. `log` is a list of attempts, the
    last ones, as webhooks/settling.py writes them.
    """

    endpoint = models.ForeignKey(WebhookEndpoint, models.CASCADE, related_name="deliveries", db_index=False)
    event = models.ForeignKey(WebhookEvent, models.CASCADE, related_name="deliveries", db_index=False)
    subject = models.CharField(max_length=64, blank=True)  # as the event's, for the order of claims
    status = models.CharField(
        _("status"), max_length=10, choices=DeliveryStatus.choices, default=DeliveryStatus.PENDING
    )
    created_at = models.DateTimeField(_("created"))
    untried = models.BooleanField(default=True)
    attempts = models.PositiveSmallIntegerField(_("attempts"), default=0)
    next_attempt_at = models.DateTimeField(_("next attempt"), null=True, blank=True)
    lease_token = models.UUIDField(null=True, editable=False)
    lease_until = models.DateTimeField(null=True, editable=False)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)
    last_status_code = models.PositiveSmallIntegerField(_("answer"), null=True, blank=True)
    last_error = models.CharField(_("error"), max_length=20, blank=True)
    log = models.JSONField(default=list)

    class Meta:
        verbose_name = _("webhook delivery")
        verbose_name_plural = _("webhook deliveries")
        constraints = [
            models.UniqueConstraint("event", "endpoint", name="webhook_delivery_once"),
            models.CheckConstraint(
                condition=models.Q(status__in=DeliveryStatus.values), name="webhook_delivery_status_known"
            ),
            models.CheckConstraint(
                condition=models.Q(lease_token__isnull=True, lease_until__isnull=True)
                | models.Q(lease_token__isnull=False, lease_until__isnull=False),
                name="webhook_delivery_lease_whole",
            ),
        ]
        indexes = [
            models.Index(fields=["endpoint", "-id"], name="webhook_delivery_list"),
            models.Index(  # the log, narrowed to what failed
                fields=["endpoint", "-id"],
                name="webhook_delivery_failed",
                condition=models.Q(status="failed"),
            ),
            models.Index(  # claiming: what was never tried, and whether something of its subject is before it
                "endpoint",
                "id",
                name="webhook_delivery_fresh",
                condition=models.Q(status="pending", untried=True),
            ),
            models.Index(
                "endpoint",
                "subject",
                "id",
                name="webhook_delivery_order",
                condition=models.Q(status="pending", untried=True) & ~models.Q(subject=""),
            ),
            models.Index(  # claiming: what is to be tried again
                "endpoint",
                "next_attempt_at",
                name="webhook_delivery_retry",
                condition=models.Q(status="pending", untried=False),
            ),
            models.Index(  # claiming: how many are in flight; and leases that have run out
                "endpoint",
                "lease_until",
                name="webhook_delivery_leased",
                condition=models.Q(lease_token__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pk} {self.status}"


class WebhookReplay(models.Model):
    """An order to deliver again what happened between two moments, worked off in batches by webhooks/replaying.py."""

    endpoint = models.ForeignKey(WebhookEndpoint, models.CASCADE, related_name="replays")
    since = models.DateTimeField(_("from"))
    until = models.DateTimeField(_("to"))
    everything = models.BooleanField(_("also what arrived"), default=False)
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    place_at = models.DateTimeField(null=True, editable=False)  # how far it got: an event's time and id
    place_id = models.BigIntegerField(default=0, editable=False)
    replayed = models.PositiveIntegerField(_("deliveries"), default=0)
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)

    class Meta:
        verbose_name = _("webhook replay")
        verbose_name_plural = _("webhook replays")
        indexes = [
            models.Index("id", name="webhook_replay_open", condition=models.Q(finished_at__isnull=True))
        ]

    def __str__(self) -> str:
        return f"{self.since:%Y-%m-%d %H:%M} – {self.until:%Y-%m-%d %H:%M}"
