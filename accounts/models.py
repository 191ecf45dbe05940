"""Who: tenants, their projects and members, and the keys their programs use."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import structlog
from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from pilot.outbox import EventRow

log = structlog.get_logger(__name__)


class Environment(models.TextChoices):
    """TEST and LIVE never see each other's data."""

    TEST = "test", _("Test")
    LIVE = "live", _("Live")


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        return self.create_user(email, password, **{"is_staff": True, "is_superuser": True} | fields)

    def get_by_natural_key(self, username: str | None) -> User:
        return self.get(email=(username or "").strip().lower())


class User(AbstractBaseUser, PermissionsMixin):
    """A person, known by e-mail address."""

    email = models.EmailField(_("e-mail"), unique=True)  # always lower case
    name = models.CharField(_("name"), max_length=120, blank=True)
    is_staff = models.BooleanField(_("support staff"), default=False)
    is_active = models.BooleanField(_("active"), default=True)
    date_joined = models.DateTimeField(_("joined"), default=timezone.now)
    # how the person is told of trouble (accounts/alerting.py)
    alert_number = models.CharField(_("WhatsApp for alerts"), max_length=20, blank=True)  # E.164
    alert_language = models.CharField(
        _("language of alerts"), max_length=10, choices=settings.LANGUAGES, blank=True
    )

    objects = UserManager()

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS = []

    class Meta:
        verbose_name = _("user")
        verbose_name_plural = _("users")
        constraints = [
            models.CheckConstraint(condition=models.Q(email=Lower("email")), name="user_email_lower_case")
        ]

    def __str__(self) -> str:
        return self.email

    def clean(self) -> None:
        self.email = self.email.strip().lower()


def validate_time_zone(value: str) -> None:
    """Raises ValidationError unless `value` is an IANA time zone name."""
    if value not in available_timezones():
        raise ValidationError(_("%(value)s is not a time zone."), params={"value": value})


class Tenant(models.Model):
    """A customer of Pilot. Every other row belongs to exactly one tenant."""

    name = models.CharField(_("name"), max_length=120)
    slug = models.SlugField(_("slug"), max_length=60, unique=True)
    time_zone = models.CharField(
        _("time zone"), max_length=60, default="America/Sao_Paulo", validators=[validate_time_zone]
    )
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    contents_days = models.PositiveSmallIntegerField(
        _("contents kept (days)"),
        null=True,
        blank=True,
        help_text=_(
            "After so many days the texts of messages are deleted. 0 keeps them; empty is the usual time."
        ),
    )

    class Meta:
        verbose_name = _("tenant")
        verbose_name_plural = _("tenants")

    def __str__(self) -> str:
        return self.name


def zone_of(tenant: Tenant | str) -> ZoneInfo:
    """The time zone of a tenant, or of a zone's name. UTC, with a warning, when there is no zone of that name.

    Only forms check the name; an unknown one, stored by a statement or dropped from the zones' database, must not
    stop whoever reads a tenant's calendar.
    """
    name = tenant if isinstance(tenant, str) else tenant.time_zone
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        log.warning("tenant.time_zone_unknown", time_zone=name)
        return ZoneInfo("UTC")


class Project(models.Model):
    """A tenant's application or brand. Projects on one instance take turns, in proportion to their weights."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="projects")
    name = models.CharField(_("name"), max_length=120)
    slug = models.SlugField(_("slug"), max_length=60)
    weight = models.PositiveSmallIntegerField(
        _("weight"), default=1, validators=[MinValueValidator(1), MaxValueValidator(100)]
    )
    created_at = models.DateTimeField(_("created"), default=timezone.now)

    class Meta:
        verbose_name = _("project")
        verbose_name_plural = _("projects")
        constraints = [models.UniqueConstraint("tenant", "slug", name="project_slug_unique")]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    OWNER = "owner", _("Owner")
    ADMIN = "admin", _("Administrator")
    AGENT = "agent", _("Agent")
    VIEWER = "viewer", _("Viewer")


class Membership(models.Model):
    """A person's role in a tenant."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, models.CASCADE, related_name="memberships")
    role = models.CharField(_("role"), max_length=10, choices=Role.choices, default=Role.VIEWER)
    created_at = models.DateTimeField(_("created"), default=timezone.now)

    class Meta:
        verbose_name = _("membership")
        verbose_name_plural = _("memberships")
        constraints = [
            models.UniqueConstraint("tenant", "user", name="membership_unique"),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="membership_role_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user} · {self.tenant} · {self.role}"


class Scope(models.TextChoices):
    """What a key may do."""

    MESSAGES_READ = "messages:read", _("Read messages")
    MESSAGES_WRITE = "messages:write", _("Send messages")
    SKIP_OPT_IN = "messages:skip_opt_in", _("Send without checking opt-in")
    INSTANCES_READ = "instances:read", _("Read instances")
    INSTANCES_WRITE = "instances:write", _("Manage instances")
    TEMPLATES_READ = "templates:read", _("Read templates")
    TEMPLATES_WRITE = "templates:write", _("Manage templates")
    CONTACTS_READ = "contacts:read", _("Read contacts and opt-ins")
    CONTACTS_WRITE = "contacts:write", _("Manage contacts and opt-ins")
    USAGE_READ = "usage:read", _("Read usage")
    KEYS_ADMIN = "keys:admin", _("Manage API keys")
    WEBHOOKS_READ = "webhooks:read", _("Read webhooks")
    WEBHOOKS_WRITE = "webhooks:write", _("Manage webhooks")


def key_scopes() -> list[tuple[str, Any]]:
    """Behind a function, so that a scope more is no migration."""
    return Scope.choices


class KeyState(models.TextChoices):
    """How a key stands: the first two work."""

    ACTIVE = "active", pgettext_lazy("API key", "Active")
    ENDING = "ending", _("Replaced")  # and works beside its successor for a while
    REVOKED = "revoked", _("Revoked")
    EXPIRED = "expired", _("Expired")


class ApiKey(models.Model):
    """A program's credential. Only the hash is stored: see accounts/keys.py for issuing and checking."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="api_keys")
    project = models.ForeignKey(Project, models.CASCADE, related_name="api_keys")
    name = models.CharField(_("name"), max_length=80)
    environment = models.CharField(_("environment"), max_length=4, choices=Environment.choices)
    prefix = models.CharField(_("prefix"), max_length=24, unique=True)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scopes = ArrayField(models.CharField(max_length=40, choices=key_scopes), verbose_name=_("scopes"))
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True)
    rotated_to = models.OneToOneField(
        "self", models.SET_NULL, null=True, blank=True, related_name="rotated_from"
    )
    once = models.UUIDField(null=True, editable=False)  # the form that was filled in for it

    class Meta:
        verbose_name = _("API key")
        verbose_name_plural = _("API keys")
        constraints = [
            models.UniqueConstraint("tenant", "once", name="api_key_once"),
            models.CheckConstraint(
                condition=models.Q(environment__in=Environment.values), name="api_key_environment_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class Action(models.TextChoices):
    """What the audit log knows of: the closed list, as "<what>.<done>". A new action is a line here."""

    KEY_ISSUED = "key.issued", _("API key issued")
    KEY_ROTATED = "key.rotated", _("API key rotated")
    KEY_REVOKED = "key.revoked", _("API key revoked")
    INSTANCE_CREATED = "instance.created", _("Instance created")
    INSTANCE_CHANGED = "instance.changed", _("Instance's settings changed")
    INSTANCE_PAIRED = "instance.paired", _("Code to connect requested")
    INSTANCE_PAUSED = "instance.paused", _("Instance paused")
    INSTANCE_RESUMED = "instance.resumed", _("Instance resumed")
    INSTANCE_RESTARTED = "instance.restarted", _("Instance restarted")
    INSTANCE_UNLINKED = "instance.unlinked", _("Number unlinked")
    INSTANCE_REMOVED = "instance.removed", _("Instance removed")
    TEMPLATE_CREATED = "template.created", _("Template created")
    TEMPLATE_CHANGED = "template.changed", _("Template version added")
    TEMPLATE_PUBLISHED = "template.published", _("Template version published")
    TEMPLATE_ARCHIVED = "template.archived", _("Template archived")
    TEMPLATE_RESTORED = "template.restored", _("Template restored")
    CONTACT_CHANGED = "contact.changed", _("Contact changed")
    OPT_IN_GRANTED = "opt_in.granted", _("Opt-in recorded")
    OPT_IN_REVOKED = "opt_in.revoked", _("Opt-out recorded")
    OPT_IN_SKIPPED = "opt_in.skipped", _("Sent without checking opt-in")
    QUEUE_PURGED = "queue.purged", _("Waiting messages cancelled")
    WEBHOOK_CREATED = "webhook.created", _("Webhook created")
    WEBHOOK_CHANGED = "webhook.changed", _("Webhook changed")
    WEBHOOK_SECRET_ROTATED = "webhook.secret_rotated", _("Webhook's secret rotated")
    WEBHOOK_ENABLED = "webhook.enabled", _("Webhook switched on")
    WEBHOOK_DISABLED = "webhook.disabled", _("Webhook switched off")
    WEBHOOK_REMOVED = "webhook.removed", _("Webhook removed")
    WEBHOOK_REPLAYED = "webhook.replayed", _("Webhook events replayed")


def audit_actions() -> list[tuple[str, Any]]:
    """Behind a function, so that an action more is no migration."""
    return Action.choices


class AuditEntry(models.Model):
    """Who did what to which row, and when. Only accounts/audit.py writes one, and the database refuses to change it.

    Names are copied: an entry still says who it was when the person, the key or the row is gone.
    """

    tenant = models.ForeignKey(Tenant, models.CASCADE, null=True, related_name="+", db_index=False)
    user = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    key = models.ForeignKey(ApiKey, models.SET_NULL, null=True, related_name="+")
    actor = models.CharField(_("who"), max_length=120)  # an e-mail address, a key's prefix or "system"
    action = models.CharField(_("action"), max_length=40, choices=audit_actions)
    target_kind = models.CharField(_("kind"), max_length=40)  # a model's name, such as "instance"
    target_id = models.CharField(max_length=64)
    target_name = models.CharField(_("what"), max_length=120)
    detail = models.JSONField(_("detail"), default=dict)
    at = models.DateTimeField(_("at"), default=timezone.now)
    request_id = models.CharField(_("request"), max_length=64, blank=True)

    class Meta:
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit log")
        indexes = [models.Index(fields=["tenant", "-id"], name="audit_entry_list")]

    def __str__(self) -> str:
        return f"{self.actor}: {self.action} {self.target_name}"


class Event(EventRow):
    """Something that a tenant's own programs may want to hear of, beside what happens to messages.

    Written by accounts/events.py in the transaction of the change. `kind` is a name of the event catalogue
    (docs/webhooks.md). Without a project it concerns the whole tenant, without an environment test and live alike.
    Events of one `subject` are told in their order.
    """

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="+", db_index=False)
    project = models.ForeignKey(Project, models.CASCADE, null=True, related_name="+", db_index=False)
    environment = models.CharField(max_length=4, choices=Environment.choices, blank=True)
    subject = models.CharField(max_length=64, blank=True)

    class Meta:
        verbose_name = _("event")
        verbose_name_plural = _("events")
        constraints = [
            models.UniqueConstraint(  # readers, by their place
                "position", name="event_position", condition=models.Q(position__isnull=False)
            )
        ]
        indexes = [
            models.Index("id", name="event_unnumbered", condition=models.Q(position__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.at:%H:%M:%S}"
