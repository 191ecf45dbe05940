"""Rows about the running processes themselves."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.utils.translation import gettext_lazy as _


class Heartbeat(models.Model):
    """The last time that a process did real work, not merely lived. See pilot/health.py."""

    name = models.CharField(max_length=120, primary_key=True)
    kind = models.CharField(max_length=20)
    progressed_at = models.DateTimeField()
    detail = models.JSONField(default=dict)

    def __str__(self) -> str:
        return self.name


class StreamPlace(models.Model):
    """How far a reader (or the relay that numbers events) has got. In the database, because streams may vanish."""

    name = models.CharField(max_length=60, primary_key=True)
    position = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name} at {self.position}"


class Lease(models.Model):
    """Who does a piece of work now, and until when at most. See pilot/leases.py."""

    name = models.CharField(max_length=60, primary_key=True)
    token = models.UUIDField()
    until = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class BeatRun(models.Model):
    """When beat last asked for an entry of its table, so that the next leader goes on from there. See pilot/beat.py."""

    name = models.CharField(max_length=100, primary_key=True)
    ran_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class Alert(models.Model):
    """Something that somebody must know, from when it was raised until it recovered. See pilot/alerts/."""

    kind = models.CharField(_("kind"), max_length=40)
    subject = models.CharField(_("subject"), max_length=200)
    # No constraint in the database: it would be checked at the end of the transaction of whoever raised the alert.
    tenant = models.ForeignKey(
        "accounts.Tenant",
        models.CASCADE,
        null=True,
        blank=True,
        related_name="alerts",
        db_constraint=False,
        db_index=False,
    )
    detail = models.JSONField(_("detail"), default=dict, encoder=DjangoJSONEncoder)
    raised_at = models.DateTimeField(_("raised"))
    seen_at = models.DateTimeField(_("last seen"))
    times = models.PositiveIntegerField(_("times seen"), default=1)
    recovered_at = models.DateTimeField(_("recovered"), null=True, blank=True)

    class Meta:
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        constraints = [
            models.UniqueConstraint(
                "kind", "subject", name="alert_open_once", condition=models.Q(recovered_at__isnull=True)
            )
        ]
        indexes = [
            models.Index("tenant", models.F("id").desc(), name="alert_list"),  # a tenant's page
            models.Index(
                "tenant", name="alert_open", condition=models.Q(recovered_at__isnull=True)
            ),  # every page
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}"


class AlertDelivery(models.Model):
    """One notice to one recipient: the row is the job. While it is being sent, `next_attempt_at` is its lease's end."""

    class Notice(models.TextChoices):
        RAISED = "raised", _("Raised")
        RECOVERED = "recovered", _("Recovered")

    class State(models.TextChoices):
        WAITING = "waiting", _("Waiting")
        DELIVERED = "delivered", _("Delivered")
        FAILED = "failed", _("Failed")

    alert = models.ForeignKey(
        Alert, models.CASCADE, related_name="deliveries", db_index=False, verbose_name=_("alert")
    )
    notice = models.CharField(_("notice"), max_length=10, choices=Notice.choices)
    channel = models.CharField(_("channel"), max_length=20)
    recipient = models.CharField(_("recipient"), max_length=254, blank=True)
    language = models.CharField(_("language"), max_length=10)
    state = models.CharField(_("state"), max_length=10, choices=State.choices, default=State.WAITING)
    attempts = models.PositiveSmallIntegerField(_("attempts"), default=0)
    next_attempt_at = models.DateTimeField(_("next attempt"), null=True, blank=True)
    token = models.UUIDField(null=True, editable=False)  # of the attempt under way
    delivered_at = models.DateTimeField(_("delivered"), null=True, blank=True)
    error = models.CharField(_("error"), max_length=300, blank=True)

    class Meta:
        verbose_name = _("alert delivery")
        verbose_name_plural = _("alert deliveries")
        constraints = [
            models.UniqueConstraint("alert", "notice", "channel", "recipient", name="alert_delivery_once"),
            models.CheckConstraint(
                condition=models.Q(state__in=["waiting", "delivered", "failed"]),
                name="alert_delivery_state_known",
            ),
        ]
        indexes = [
            models.Index(  # delivering.take()
                "channel",
                "next_attempt_at",
                name="alert_delivery_due",
                condition=models.Q(state="waiting"),
            )
        ]

    def __str__(self) -> str:
        return f"{self.channel} {self.notice}"


class Tally(models.Model):
    """A count that outlives processes, for /metrics. Added to by pilot/tallies.py, in batches, never per message."""

    name = models.CharField(max_length=60)
    # Their values, in the order of the metric's labels.
    labels = ArrayField(models.CharField(max_length=40), default=list)
    value = models.FloatField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint("name", "labels", name="tally_unique")]

    def __str__(self) -> str:
        return f"{self.name} {' '.join(self.labels)}"


class MaintenanceKind(models.TextChoices):
    """The long rounds, see pilot/reconciling.py and pilot/retention.py."""

    RECONCILE = "reconcile", _("Reconciler")
    RETENTION = "retention", _("Retention")


class Outcome(models.TextChoices):
    """How a round ended; RUNNING is also what is left of one whose process died."""

    RUNNING = "running", _("Running")
    DONE = "done", _("Done")
    FAILED = "failed", _("A step failed")
    LEASE_LOST = "lease_lost", _("Another process took over")
    STOPPED = "stopped", _("The process was stopped")
    OUT_OF_TIME = "out_of_time", _("Out of time")


class MaintenanceRun(models.Model):
    """One round, and what it did: how many rows it looked at, what it changed by name, which steps failed."""

    kind = models.CharField(_("kind"), max_length=12, choices=MaintenanceKind.choices)
    started_at = models.DateTimeField(_("started"))
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)
    outcome = models.CharField(_("outcome"), max_length=12, choices=Outcome.choices, default=Outcome.RUNNING)
    seen = models.PositiveBigIntegerField(_("rows looked at"), default=0)
    changed = models.PositiveBigIntegerField(_("rows changed"), default=0)
    counts = models.JSONField(_("what was changed"), default=dict)
    errors = models.JSONField(_("failed steps"), default=dict)

    class Meta:
        verbose_name = _("maintenance run")
        verbose_name_plural = _("maintenance runs")
        indexes = [models.Index(fields=["kind", "-started_at"], name="maintenance_run_newest")]
        permissions = [("start_maintenance", "Can start the reconciler and retention")]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.started_at:%Y-%m-%d %H:%M}"


class RetentionPlace(models.Model):
    """The age up to which a policy has been carried out, where rows stay and so do not tell. See pilot/retention.py."""

    name = models.CharField(max_length=60, primary_key=True)
    reached = models.DateTimeField(_("reached"))

    def __str__(self) -> str:
        return f"{self.name} to {self.reached:%Y-%m-%d}"
