"""Magic numbers: with a TEST key each brings about one end, by way of the tenant's simulator (docs/sandbox.md)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeGuard

from django.utils.translation import gettext as _

from accounts.models import Environment
from instances.models import Instance, Provider
from instances.providers.simulator import SCENARIOS
from messaging.choosing import UnknownInstance
from messaging.models import Message
from messaging.opt_ins import Consent
from pilot.errors import PilotError


class MagicNumber(PilotError):
    """A number for tests, written to with a key that is none."""

    code = "magic_number"


def is_magic(to: object) -> TypeGuard[str]:
    """Whether it is one of them, in E.164."""
    return to in SCENARIOS


def assert_allowed(to: str, *, environment: str) -> None:
    """Raises MagicNumber for one that a LIVE key writes to."""
    if is_magic(to) and environment != Environment.TEST:
        sentence = _("This number is for tests: it needs a TEST key.")
        raise MagicNumber(sentence, fields={"to": [sentence]})


def assert_may_use(instance: Instance, *, environment: str) -> None:
    """Raises UnknownInstance where a LIVE key would send into the void."""
    if instance.provider == Provider.SIMULATOR and environment != Environment.TEST:
        sentence = _("The simulator is for tests: it needs a TEST key.")
        raise UnknownInstance(sentence, fields={"instance": [sentence]})


def consents(to: str, now: datetime) -> Sequence[Consent]:
    """Whoever is nobody agrees. An opt-out on record counts all the same."""
    return [Consent(granted_at=now, revoked_at=None)] if is_magic(to) else []


def prepare(message: Message) -> None:
    """Lets a message that is to expire wait until its deadline, which is near then."""
    scenario = SCENARIOS.get(message.to)
    if scenario is None or scenario.expires_in is None:
        return
    due = message.scheduled_at or message.created_at
    message.deliver_until = min(message.deliver_until, due + timedelta(seconds=scenario.expires_in))
    message.next_attempt_at = message.deliver_until
