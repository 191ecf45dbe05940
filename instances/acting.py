"""What a person or a program may do to an instance, each with its entry in the audit log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from accounts import audit
from accounts.models import Action
from instances import connecting, pausing
from instances.models import Instance


@dataclass(frozen=True, slots=True)
class Act:
    """What is done, as what it is recorded, and what is said afterwards."""

    do: Callable[..., Any]
    recorded: Action
    said: str | Promise


ACTS: Mapping[str, Act] = {
    "pair": Act(connecting.pair, Action.INSTANCE_PAIRED, ""),  # the code says it
    "restart": Act(connecting.restart, Action.INSTANCE_RESTARTED, _("The instance is restarting.")),
    "logout": Act(connecting.logout, Action.INSTANCE_UNLINKED, _("The number was unlinked.")),
    "stop": Act(
        connecting.logout, Action.INSTANCE_UNLINKED, _("Stopped. You can connect it in another way now.")
    ),
    "pause": Act(pausing.pause, Action.INSTANCE_PAUSED, _("Paused: its messages wait until you resume it.")),
    "resume": Act(pausing.resume, Action.INSTANCE_RESUMED, _("Resumed.")),
    "remove": Act(connecting.remove, Action.INSTANCE_REMOVED, _("The instance was removed.")),
}


def act(
    name: str, *, instance: Instance, actor: audit.Actor, now: datetime, **arguments: Any
) -> str | Promise:
    """Does one of ACTS and records it, unless nothing changed. Returns what to say.

    Raises KeyError for other names, and the PilotError of what did not work; then nothing is recorded.
    """
    chosen = ACTS[name]
    if chosen.do(instance=instance, now=now, **arguments) is not False:
        audit.record(tenant=instance.tenant, actor=actor, action=chosen.recorded, target=instance)
    return chosen.said
