"""What Pilot keeps of Meta: the apps whose webhooks come here, the templates of an account, the files it uploaded."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.models import Tenant
from pilot.encryption import EncryptedTextField


class MetaApp(models.Model):
    """An app at Meta: one webhook and one secret for all accounts that were connected through it.

    News is only taken to instances of the very app whose secret signed it. Without a tenant, the installation's own.
    """

    tenant = models.ForeignKey(Tenant, models.PROTECT, null=True, blank=True, related_name="meta_apps")
    name = models.CharField(_("name"), max_length=60)
    secret = EncryptedTextField(_("app secret"))
    secret_digest = models.CharField(max_length=64, editable=False)
    hook_token = EncryptedTextField(editable=False)
    hook_digest = models.CharField(max_length=64, unique=True, editable=False)
    verify_token = EncryptedTextField(editable=False)
    created_at = models.DateTimeField(_("created"), default=timezone.now)

    class Meta:
        verbose_name = _("Meta app")
        verbose_name_plural = _("Meta apps")
        constraints = [
            models.UniqueConstraint(
                "tenant", "secret_digest", name="meta_app_secret_unique", nulls_distinct=False
            )
        ]

    def __str__(self) -> str:
        return self.name


class MetaTemplate(models.Model):
    """A message template as Meta last described it. Approval is for each name and language."""

    instance = models.ForeignKey("instances.Instance", models.CASCADE, related_name="meta_templates")
    name = models.CharField(_("name"), max_length=512)
    language = models.CharField(_("language"), max_length=20)
    category = models.CharField(_("category"), max_length=20, blank=True)
    status = models.CharField(_("status"), max_length=30)  # Meta's word: APPROVED, PAUSED, REJECTED, …
    quality = models.CharField(_("quality"), max_length=20, blank=True)
    parameter_format = models.CharField(max_length=20, default="POSITIONAL")
    components = models.JSONField(_("components"), default=list)
    synced_at = models.DateTimeField(_("synced"))

    class Meta:
        verbose_name = _("template of Meta")
        verbose_name_plural = _("templates of Meta")
        constraints = [models.UniqueConstraint("instance", "name", "language", name="meta_template_unique")]

    def __str__(self) -> str:
        return f"{self.name} ({self.language})"


class UploadedMedia(models.Model):
    """A file that an instance uploaded to its provider, by its content: while the id lives it is not uploaded again."""

    instance = models.ForeignKey("instances.Instance", models.CASCADE, related_name="+", db_index=False)
    digest = models.CharField(max_length=64)
    mime_type = models.CharField(_("type"), max_length=100)
    media_id = models.CharField(_("provider's id"), max_length=140)
    size = models.PositiveIntegerField(_("size"))  # bytes
    uploaded_at = models.DateTimeField(_("uploaded"))
    expires_at = models.DateTimeField(_("expires"))

    class Meta:
        verbose_name = _("uploaded file")
        verbose_name_plural = _("uploaded files")
        constraints = [
            models.UniqueConstraint("instance", "digest", "mime_type", name="uploaded_media_unique")
        ]
        indexes = [models.Index("expires_at", name="uploaded_media_expiry")]  # media.forget_expired()

    def __str__(self) -> str:
        return self.media_id
