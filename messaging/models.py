"""A message from accepted to its final state, and what it needs on the way."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.models import Environment, Project, Tenant
from instances.models import Instance
from pilot.ids import new_id
from pilot.outbox import EventRow


class Category(models.TextChoices):
    """What a message is for; decides its deadline (settings.DEADLINES)."""

    OTP = "otp", _("One-time code")
    UTILITY = "utility", _("Utility")
    MARKETING = "marketing", _("Marketing")
    SESSION = "session", _("Conversation")


class Status(models.TextChoices):
    """See messaging/status.py for who may become what; only its move() writes one."""

    QUEUED = "queued", _("Queued")
    SENDING = "sending", _("Sending")
    UNCONFIRMED = "unconfirmed", _("Unconfirmed")
    SUBMITTED = "submitted", _("Submitted")
    SENT = "sent", _("Sent")
    DELIVERED = "delivered", _("Delivered")
    READ = "read", _("Read")
    PLAYED = "played", _("Played")
    FAILED = "failed", _("Failed")
    CANCELLED = "cancelled", _("Cancelled")


class FailureCode(models.TextChoices):
    """Why a message failed: the closed list. The label is the sentence a tenant reads."""

    EXPIRED = "expired", _("Its deadline passed before it could be sent.")
    NOT_ON_WHATSAPP = "not_on_whatsapp", _("The number is not on WhatsApp.")
    OPTED_OUT = "opted_out", _("The recipient asked not to receive messages.")
    REJECTED = "rejected", _("The provider refused the message.")
    INVALID_CONTENT = "invalid_content", _("What was stored of it is incomplete.")
    UNDELIVERABLE = "undeliverable", _("WhatsApp could not deliver the message.")
    WINDOW_CLOSED = (
        "window_closed",
        _("The person's last message is more than 24 hours old; only a template may be sent."),
    )
    TEMPLATE_REJECTED = "template_rejected", _("WhatsApp refused the template or its values.")
    COMMENT_ANSWERED = "comment_answered", _("The comment was answered in private already.")
    HELD_BACK = "held_back", _("WhatsApp spares this person marketing messages for now.")
    ATTEMPTS_EXHAUSTED = "attempts_exhausted", _("It could not be sent after the last attempt.")
    OUTCOME_UNKNOWN = (
        "outcome_unknown",
        _("The provider never said whether it was sent; it was not sent again."),
    )
    INSTANCE_REMOVED = "instance_removed", _("The instance it was to be sent from was removed.")
    QUEUE_TIMEOUT = "queue_timeout", _("It waited too long in the queue.")


class TemplateStatus(models.TextChoices):
    ACTIVE = "active", _("Active")
    ARCHIVED = "archived", _("Archived")


class Template(models.Model):
    """A text with {{variables}}, kept in versions; messages keep the version they were made from."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="templates")
    project = models.ForeignKey(Project, models.CASCADE, related_name="templates")
    name = models.SlugField(_("name"), max_length=80)
    category = models.CharField(_("category"), max_length=10, choices=Category.choices)
    status = models.CharField(
        _("status"), max_length=10, choices=TemplateStatus.choices, default=TemplateStatus.ACTIVE
    )
    current_version = models.ForeignKey(
        "TemplateVersion", models.PROTECT, null=True, blank=True, related_name="current_of"
    )
    created_at = models.DateTimeField(_("created"), default=timezone.now)

    class Meta:
        verbose_name = _("template")
        verbose_name_plural = _("templates")
        constraints = [models.UniqueConstraint("project", "name", name="template_name_unique")]

    def __str__(self) -> str:
        return self.name


class TemplateVersion(models.Model):
    """One immutable text. `content` is {"text", "title"?, "footer"?, "buttons"?}, see messaging/rendering.py."""

    template = models.ForeignKey(Template, models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField(_("version"))
    content = models.JSONField(_("content"))
    variables = ArrayField(models.CharField(max_length=41), default=list)
    created_at = models.DateTimeField(_("created"), default=timezone.now)

    class Meta:
        verbose_name = _("template version")
        verbose_name_plural = _("template versions")
        constraints = [models.UniqueConstraint("template", "number", name="template_version_unique")]

    def __str__(self) -> str:
        return f"{self.template} v{self.number}"


class Contact(models.Model):
    """A person a tenant writes to. The number is E.164; the provider's own id is kept beside it."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="contacts")
    number = models.CharField(_("number"), max_length=20)
    recipient_id = models.CharField(_("provider's own id"), max_length=140, blank=True)
    user_id = models.CharField(_("business-scoped id"), max_length=140, blank=True)
    name = models.CharField(_("name"), max_length=120, blank=True)
    created_at = models.DateTimeField(_("created"), default=timezone.now)

    class Meta:
        verbose_name = _("contact")
        verbose_name_plural = _("contacts")
        constraints = [models.UniqueConstraint("tenant", "number", name="contact_number_unique")]

    def __str__(self) -> str:
        return self.name or self.number


class OptIn(models.Model):
    """A contact's consent. A row with `revoked_at` is an opt-out, and is checked again at the moment of sending."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="opt_ins")
    number = models.CharField(_("number"), max_length=20)
    source = models.CharField(_("source"), max_length=40)
    evidence = models.TextField(_("evidence"), blank=True)
    granted_at = models.DateTimeField(_("granted"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True)

    class Meta:
        verbose_name = _("opt-in")
        verbose_name_plural = _("opt-ins")
        constraints = [models.UniqueConstraint("tenant", "number", name="opt_in_number_unique")]

    def __str__(self) -> str:
        return self.number


class Message(models.Model):
    """The row is the job: work, schedule, lease and deadline. Nothing about it lives only in Redis."""

    id = models.CharField(max_length=64, primary_key=True, default=new_id)
    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="messages", db_index=False)
    project = models.ForeignKey(Project, models.PROTECT, related_name="messages", db_index=False)
    instance = models.ForeignKey(Instance, models.PROTECT, related_name="messages", db_index=False)
    template_version = models.ForeignKey(
        TemplateVersion, models.PROTECT, null=True, related_name="messages", db_index=False
    )
    environment = models.CharField(_("environment"), max_length=4, choices=Environment.choices)
    source = models.CharField(_("source"), max_length=12, default="api")

    # what
    to = models.CharField(_("to"), max_length=140)  # E.164, or the provider's own id of a person
    recipient_id = models.CharField(_("provider's own id"), max_length=140, blank=True)
    category = models.CharField(_("category"), max_length=10, choices=Category.choices)
    urgent = models.BooleanField(_("urgent"), default=False)
    body_override = models.BooleanField(_("own text"), default=False)
    variables = models.JSONField(_("variables"), default=dict, blank=True)
    content = models.JSONField(_("content"))
    metadata = models.JSONField(_("metadata"), default=dict, blank=True)
    reference = models.CharField(_("reference"), max_length=120, blank=True)

    # when
    created_at = models.DateTimeField(_("created"))
    scheduled_at = models.DateTimeField(_("scheduled for"), null=True, blank=True)
    deliver_until = models.DateTimeField(_("deadline"))
    next_attempt_at = models.DateTimeField(_("next attempt"), null=True, blank=True)  # NULL: ready now
    attempts = models.PositiveSmallIntegerField(_("attempts"), default=0)
    attempted_at = models.DateTimeField(_("last attempt"), null=True, blank=True)
    held_by = models.CharField(_("held by"), max_length=20, blank=True)
    late = models.BooleanField(_("found late"), default=False)  # by reconciling; no pace after it
    expected_at = models.DateTimeField(
        _("expected"), null=True, blank=True
    )  # the forecast when it was accepted

    # who is sending it now; cleared when settled, whatever a receipt did to the status meanwhile
    lease_token = models.UUIDField(null=True, editable=False)
    lease_until = models.DateTimeField(null=True, editable=False)

    # what became of it
    status = models.CharField(_("status"), max_length=12, choices=Status.choices, default=Status.QUEUED)
    failure_code = models.CharField(_("failure"), max_length=24, blank=True)
    failure_detail = models.CharField(_("detail"), max_length=500, blank=True)
    provider_message_id = models.CharField(  # noqa: DJ001 - unique where it is known
        _("provider's message id"), max_length=255, null=True, blank=True
    )
    submitted_at = models.DateTimeField(_("submitted"), null=True, blank=True)
    sent_at = models.DateTimeField(_("sent"), null=True, blank=True)
    delivered_at = models.DateTimeField(_("delivered"), null=True, blank=True)
    read_at = models.DateTimeField(_("read"), null=True, blank=True)
    played_at = models.DateTimeField(_("played"), null=True, blank=True)
    failed_at = models.DateTimeField(_("failed at"), null=True, blank=True)
    cancelled_at = models.DateTimeField(_("cancelled"), null=True, blank=True)

    class Meta:
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        # Measured: a status change is never HOT, so every full index is paid at each of 4 to 6 changes. Keep to these.
        indexes = [
            models.Index(
                fields=["tenant", "environment", "-created_at", "-id"], name="message_list"
            ),  # the API's list
            models.Index(  # claiming.claim()
                "instance",
                models.F("urgent").desc(),
                "project",
                "deliver_until",
                "id",
                name="message_ready",
                condition=models.Q(status="queued", next_attempt_at__isnull=True),
            ),
            models.Index(  # pulse.promote()
                "next_attempt_at",
                name="message_waiting",
                condition=models.Q(status="queued", next_attempt_at__isnull=False),
            ),
            models.Index(  # queues.waiting() and purging: what one instance delays, however much the others do
                "instance",
                "next_attempt_at",
                name="message_delayed",
                condition=models.Q(status="queued", next_attempt_at__isnull=False),
            ),
            models.Index(  # reconciling.look_up_unconfirmed()
                "next_attempt_at", name="message_unconfirmed", condition=models.Q(status="unconfirmed")
            ),
            models.Index(  # acknowledging.ask() and validating.validate()
                "next_attempt_at",
                name="message_unacknowledged",
                condition=models.Q(status="submitted", next_attempt_at__isnull=False),
            ),
            models.Index(  # reconciling.release_expired_leases()
                "lease_until", name="message_leased", condition=models.Q(lease_until__isnull=False)
            ),
            models.Index(  # sweeps.doubt_stranded(): it has no entry, unless something went wrong
                "id",
                name="message_stranded",
                condition=models.Q(status="sending", lease_until__isnull=True),
            ),
        ]
        constraints = [
            models.UniqueConstraint(  # receiving.apply()
                "instance",
                "provider_message_id",
                name="message_provider_id",
                condition=models.Q(provider_message_id__isnull=False),
            ),
            models.CheckConstraint(condition=models.Q(status__in=Status.values), name="message_status_known"),
            models.CheckConstraint(
                condition=models.Q(failure_code__in=["", *FailureCode.values]), name="message_failure_known"
            ),
            models.CheckConstraint(
                condition=~models.Q(status="failed") | ~models.Q(failure_code=""),
                name="message_failed_has_code",
            ),
            models.CheckConstraint(
                condition=models.Q(lease_token__isnull=True, lease_until__isnull=True)
                | models.Q(lease_token__isnull=False, lease_until__isnull=False),
                name="message_lease_whole",
            ),
        ]

    def __str__(self) -> str:
        return self.id


class MessageEvent(EventRow):
    """One line of a message's timeline. `applied` is False for news that came too late to change anything."""

    numbered_if = "applied"

    message = models.ForeignKey(Message, models.CASCADE, related_name="events", db_index=False)
    # The message's own, which has a constraint: asking again would lock the tenant's row for each event.
    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="+", db_index=False, db_constraint=False)
    applied = models.BooleanField(default=True)

    class Meta:
        verbose_name = _("message event")
        verbose_name_plural = _("message events")
        constraints = [
            models.UniqueConstraint(  # readers of the stream that find a hole
                "position", name="message_event_position", condition=models.Q(position__isnull=False)
            )
        ]
        indexes = [
            models.Index("message", "id", name="message_event_timeline"),
            models.Index(  # the relay
                "id",
                name="message_event_unannounced",
                condition=models.Q(position__isnull=True, applied=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.at:%H:%M:%S}"


class MessageLabel(models.Model):
    """What a list of messages may be filtered by: an entry of `metadata`, or, under an empty name, `reference`.

    Rows of their own, because an index on Message would be paid at each change of a message, and this is paid once.
    """

    message = models.ForeignKey(Message, models.CASCADE, related_name="+")
    project = models.ForeignKey(
        Project, models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    name = models.CharField(max_length=40, blank=True)
    value = models.CharField(max_length=500, blank=True)

    class Meta:
        verbose_name = _("label")
        verbose_name_plural = _("labels")
        indexes = [models.Index(fields=["project", "name", "value", "message"], name="message_label")]

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


class ProjectTurn(models.Model):
    """How far a project has got on an instance: what makes the queue fair between projects.

    Start-time fair queueing: `turn` grows by 1/weight with each message sent, and the project with the smallest
    goes next. A project that was idle starts at the lane's own clock, so it cannot save up turns.
    """

    instance = models.ForeignKey(Instance, models.CASCADE, related_name="+", db_index=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="+", db_index=False)
    turn = models.FloatField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint("instance", "project", name="project_turn_unique")]

    def __str__(self) -> str:
        return f"{self.instance_id}/{self.project_id}"


class IdempotencyKey(models.Model):
    """A client's Idempotency-Key, kept for ever: unique per tenant and environment."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+", db_index=False)
    environment = models.CharField(max_length=4, choices=Environment.choices)
    key = models.CharField(max_length=255)
    body_digest = models.CharField(max_length=64)
    message = models.ForeignKey(Message, models.CASCADE, related_name="+", db_index=False)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint("tenant", "environment", "key", name="idempotency_key_unique")]

    def __str__(self) -> str:
        return self.key


class UnknownPolicy(models.Model):
    """What a tenant wants for messages whose outcome stays unknown: `fail` unless a row says `resend`.

    Only one-time codes may be sent again: a second code does no harm, a second invoice does.
    """

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="unknown_policies")
    category = models.CharField(_("category"), max_length=10, choices=Category.choices, default=Category.OTP)
    resend = models.BooleanField(_("send again"), default=False)

    class Meta:
        verbose_name = _("policy for unknown outcomes")
        verbose_name_plural = _("policies for unknown outcomes")
        constraints = [
            models.UniqueConstraint("tenant", "category", name="unknown_policy_unique"),
            models.CheckConstraint(
                condition=models.Q(category=Category.OTP) | models.Q(resend=False),
                name="unknown_policy_resends_only_otp",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.category}: {'resend' if self.resend else 'fail'}"


class ParkedReceipt(models.Model):
    """A receipt for a provider id that no message has yet: it may overtake the answer to the send."""

    instance = models.ForeignKey(Instance, models.CASCADE, related_name="+", db_index=False)
    provider_message_id = models.CharField(max_length=255)
    status = models.CharField(max_length=12, choices=Status.choices)
    detail = models.JSONField(default=dict)
    at = models.DateTimeField()
    next_look_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint("instance", "provider_message_id", "status", name="parked_receipt_unique")
        ]
        indexes = [models.Index("next_look_at", name="parked_receipt_due")]  # receiving.apply_parked()

    def __str__(self) -> str:
        return f"{self.provider_message_id} {self.status}"


class ReceivedMessage(models.Model):
    """A message from a person to one of the tenant's instances."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="received", db_index=False)
    instance = models.ForeignKey(Instance, models.CASCADE, related_name="received", db_index=False)
    provider_message_id = models.CharField(max_length=255)
    sender_id = models.CharField(_("from (provider's own id)"), max_length=140)
    user_id = models.CharField(_("business-scoped id"), max_length=140, blank=True)
    sender_number = models.CharField(_("from"), max_length=20, blank=True)
    kind = models.CharField(_("kind"), max_length=40)
    text = models.TextField(_("text"), blank=True)
    reply_to = models.CharField(_("answers"), max_length=255, blank=True)
    outgoing = models.BooleanField(_("written by the account itself"), default=False)
    raw = models.JSONField(default=dict)
    at = models.DateTimeField(_("at"))

    class Meta:
        verbose_name = _("received message")
        verbose_name_plural = _("received messages")
        indexes = [models.Index(fields=["tenant", "-id"], name="received_list")]
        constraints = [
            models.UniqueConstraint("instance", "provider_message_id", name="received_provider_id_unique")
        ]

    def __str__(self) -> str:
        return self.text[:40]


class Window(models.Model):
    """What one person's messages allow an instance: to write freely for a day after the last, and how fast.

    `address` is the number without what differs between its forms (numbers.compare_key), or the provider's own id.
    Only messaging/windows.py writes it.
    """

    instance = models.ForeignKey(Instance, models.CASCADE, related_name="windows", db_index=False)
    address = models.CharField(max_length=140)
    received_at = models.DateTimeField(_("last message"), null=True)
    received_id = models.CharField(max_length=255, blank=True)
    closed_at = models.DateTimeField(_("closed"), null=True)  # when the provider said that it is
    refused_at = models.DateTimeField(_("last refusal"), null=True)
    refused_by = models.CharField(_("reason"), max_length=24, blank=True)  # a FailureCode
    full_at = models.DateTimeField(null=True)  # when the rate to this person is used up no more

    class Meta:
        verbose_name = _("window")
        verbose_name_plural = _("windows")
        constraints = [models.UniqueConstraint("instance", "address", name="window_address_unique")]

    def __str__(self) -> str:
        return f"{self.instance_id} {self.address}"


class CommentAnswer(models.Model):
    """The one message that may answer a comment in private. Only messaging/recipients.py writes it."""

    instance = models.ForeignKey(Instance, models.CASCADE, related_name="+", db_index=False)
    comment_id = models.CharField(_("comment"), max_length=255)
    message = models.ForeignKey(Message, models.CASCADE, related_name="+")
    at = models.DateTimeField(_("at"))

    class Meta:
        verbose_name = _("answer to a comment")
        verbose_name_plural = _("answers to comments")
        constraints = [models.UniqueConstraint("instance", "comment_id", name="comment_answered_once")]

    def __str__(self) -> str:
        return self.comment_id


class Purge(models.Model):
    """An order to cancel what waits on an instance, as a row: it survives whoever carries it out (purging.py)."""

    instance = models.ForeignKey(Instance, models.CASCADE, related_name="purges", db_index=False)
    before = models.DateTimeField()  # what was accepted later stays
    total = models.PositiveIntegerField()  # that waited when it was ordered
    cancelled = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = _("purge")
        verbose_name_plural = _("purges")
        constraints = [
            models.UniqueConstraint(
                "instance", name="purge_under_way", condition=models.Q(finished_at__isnull=True)
            )
        ]
        indexes = [models.Index(fields=["instance", "-id"], name="purge_list")]

    def __str__(self) -> str:
        return f"{self.cancelled} of {self.total}"
