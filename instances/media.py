"""Files that are uploaded to a provider before messages name them: once for each content, while its id lives."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from django.utils.translation import gettext as _

from instances.connecting import ConnectingError
from instances.models import Instance, UploadedMedia
from instances.providers import META, provider_for
from instances.providers.base import ProviderError
from instances.providers.http import perform
from instances.providers.meta import media as rules
from pilot.errors import PilotError

LIVES = timedelta(days=30)  # at Meta, for the number that uploaded it
# A message may wait for a day, and its id must still be good then.
LEFT_AT_LEAST = timedelta(days=2)


class InvalidMedia(PilotError):
    """A file that the provider would not take."""

    code = "invalid_media"


class NoUploadError(PilotError):
    """The instance's provider takes files by their address only."""

    code = "no_upload"


def upload(*, instance: Instance, name: str, mime_type: str, data: bytes, now: datetime) -> UploadedMedia:
    """The provider's id for a file, uploaded unless the very content was before. No transaction may be open.

    Raises InvalidMedia, NoUploadError, and ConnectingError when the provider does not take it.
    """
    if "media" not in provider_for(instance).supports:
        raise NoUploadError(
            _("This instance sends files by their address."), fields={"instance": [instance.name]}
        )
    if sentence := rules.fault(mime_type=mime_type, size=len(data)):
        raise InvalidMedia(_("The file cannot be sent."), fields={"file": [sentence]})
    digest = hashlib.sha256(data).hexdigest()
    if known := _known(instance, digest, mime_type, now):
        return known
    media_id = _upload(instance, name, mime_type, data)
    values = {"media_id": media_id, "size": len(data), "uploaded_at": now, "expires_at": now + LIVES}
    row, _created = UploadedMedia.objects.update_or_create(
        instance=instance, digest=digest, mime_type=mime_type, defaults=values
    )
    return row


def forget_expired(*, now: datetime) -> int:
    """Deletes what no provider has any more. Returns how many."""
    return UploadedMedia.objects.filter(expires_at__lte=now).delete()[0]


def _known(instance: Instance, digest: str, mime_type: str, now: datetime) -> UploadedMedia | None:
    rows = UploadedMedia.objects.filter(instance=instance, digest=digest, mime_type=mime_type)
    return rows.filter(expires_at__gt=now + LEFT_AT_LEAST).first()


def _upload(instance: Instance, name: str, mime_type: str, data: bytes) -> str:
    try:
        return perform(META.upload(instance.account(), name=name, mime_type=mime_type, data=data))
    except ProviderError as error:
        raise ConnectingError(error) from error
