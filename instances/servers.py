"""Which Evolution server a new instance goes to."""

from __future__ import annotations

from collections.abc import Mapping

from django.conf import settings
from django.db.models import Count, F, Q
from django.utils.translation import gettext as _

from instances.models import EvolutionServer, InstanceStatus
from pilot.encryption import DecryptionError
from pilot.errors import PilotError

FROM_SETTINGS = "default"


class NoServerError(PilotError):
    """There is no Evolution server with room."""

    code = "no_server"
    status = 503


def choose() -> EvolutionServer:
    """The least loaded server that takes new instances and has room. To be called in a transaction.

    It stays locked until the transaction ends, so that two new instances cannot take the last place.
    Raises NoServerError.
    """
    take_from_settings()
    # Locked before it is counted: a count that is read with the lock may be from before the wait for it.
    locked = EvolutionServer.objects.select_for_update().filter(accepts_new=True).order_by("pk")
    candidates = list(locked.values_list("pk", flat=True))
    present = Count("instances", filter=~Q(instances__status=InstanceStatus.REMOVED))
    counted = EvolutionServer.objects.filter(pk__in=candidates).annotate(load=present)
    server = counted.filter(load__lt=F("capacity")).order_by("load", "pk").first()
    if server is None:
        raise NoServerError(_("No Evolution server has room for another instance."))
    return server


def take_from_settings() -> None:
    """Keeps the server of EVOLUTION_URL, where it is set: the environment wins over what an operator edited."""
    if not settings.EVOLUTION_URL:
        return
    wanted = {"url": settings.EVOLUTION_URL, "api_key": settings.EVOLUTION_API_KEY}
    if _stored() == wanted:
        return
    if not EvolutionServer.objects.filter(name=FROM_SETTINGS).update(**wanted):
        EvolutionServer.objects.get_or_create(name=FROM_SETTINGS, defaults=wanted)


def _stored() -> Mapping[str, object] | None:
    """The address and the key on record; None where there are none that can be read."""
    try:
        return EvolutionServer.objects.filter(name=FROM_SETTINGS).values("url", "api_key").first()
    except DecryptionError:
        return None
