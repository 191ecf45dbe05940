"""An instance from its creation to its removal, at the provider and here, and what the provider says of it meanwhile.

The row is always first: a provider that fails leaves a row that says so and can be tried again, never an instance
that nobody knows of. Functions that ask the provider do so outside of transactions, and raise ConnectingError.
"""

from __future__ import annotations

import re
import secrets
import time
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import Tenant
from instances import hooks, outages, servers, status
from instances.models import Instance, InstanceStatus, Lane
from instances.providers import provider_for
from instances.providers.base import (
    DISCONNECTED,
    INSTANCE_REMOVED,
    MISCONFIGURED,
    NO_ANSWER,
    UNREACHABLE,
    UNSUPPORTED,
    Call,
    ConnectionEvent,
    Pairing,
    ProviderError,
)
from instances.providers.http import perform
from pilot.errors import PilotError

T = TypeVar("T")

QR_LIFE = timedelta(seconds=45)
REMOVED_AT_PROVIDER = "removed_at_provider"
PROVIDER_REFUSED = "provider_refused"
GONE_TRIES, GONE_PAUSE = (
    20,
    0.25,
)  # how often, and with how many seconds between, to ask whether it is deleted

NOT_OPEN = frozenset(InstanceStatus.values) - {InstanceStatus.OPEN}
NO_CODE: dict[str, Any] = {"qr_code": "", "pairing_code": "", "qr_count": 0, "qr_expires_at": None}

EXPLANATIONS = {
    UNREACHABLE: gettext_lazy("The provider cannot be reached. Try again in a moment."),
    NO_ANSWER: gettext_lazy("The provider does not answer. Try again in a moment."),
    MISCONFIGURED: gettext_lazy("The provider refuses us: its address, key or licence is not right."),
    DISCONNECTED: gettext_lazy("The instance has no connection to WhatsApp."),
    UNSUPPORTED: gettext_lazy("This account is connected at its provider, not from here."),
    INSTANCE_REMOVED: gettext_lazy("The provider no longer has this instance. Connect it again."),
}


class ConnectingError(PilotError):
    """The provider did not do what was asked. `code` is that of the ProviderError where it says something to people."""

    codes = (*EXPLANATIONS, PROVIDER_REFUSED)
    status = 502

    def __init__(self, error: ProviderError) -> None:
        super().__init__(str(EXPLANATIONS.get(error.code, _("The provider refused what was asked."))))
        self.code = error.code if error.code in EXPLANATIONS else PROVIDER_REFUSED


class NameTakenError(PilotError):
    """The tenant has an instance of that name."""

    code = "name_taken"
    status = 409


class StillThereError(PilotError):
    """The provider has not deleted the instance yet."""

    code = "still_there"
    status = 503


# --- what a person asks for -------------------------------------------------------------------------------


def create(*, tenant: Tenant, name: str, now: datetime) -> Instance:
    """A new instance, here and at the provider; connect it with `pair()`.

    Does not raise when the provider fails: the row then stays `created` with the reason, and `pair()` tries again.
    Raises NameTakenError and NoServerError.
    """
    instance = _insert(tenant, name, now)
    try:
        _build(instance, now)
    except ConnectingError as error:
        Instance.objects.filter(pk=instance.pk).update(status_reason=error.code)
        status.note(instance_id=instance.pk, kind="create_failed", at=now, detail={"reason": error.code})
    instance.refresh_from_db()
    return instance


def pair(*, instance: Instance, now: datetime, number: str = "") -> Pairing:
    """Starts connecting and stores the code to scan; `number` (E.164) asks for a code to type as well.

    An instance that the provider does not have, or no longer, is made there first. The code may be empty: the
    provider then announces it a little later.
    """
    try:
        pairing = _ask(provider_for(instance).connect(instance.account(), number=number))
    except ConnectingError as error:
        if error.code != INSTANCE_REMOVED:
            raise
        _build(instance, now)
        pairing = _ask(provider_for(instance).connect(instance.account(), number=number))
    apply_connection(instance=instance, event=pairing, now=now)
    return pairing


def restart(*, instance: Instance, now: datetime) -> None:
    """Gives an instance a new socket; one that is closed is connected.

    The status is left to the provider's news: set here, "connecting" could come after the news that it is open.
    """
    status.note(instance_id=instance.pk, kind="restarted", at=now, detail={})
    try:
        _ask(provider_for(instance).restart(instance.account()))
    except ConnectingError as error:
        if error.code != DISCONNECTED:
            raise
        pair(instance=instance, now=now)


def logout(*, instance: Instance, now: datetime) -> None:
    """Unlinks the number; the instance stays and can be paired again."""
    _ask(provider_for(instance).logout(instance.account()))
    _close(instance, "logged_out", now)
    outages.cancel(instance_id=instance.pk, at=now)


def remove(*, instance: Instance, now: datetime) -> None:
    """Removes an instance for good: nothing is sent from it any more, and the provider forgets it.

    May be repeated. Raises StillThereError when the provider takes longer than about five seconds.
    """
    _close(instance, "removing", now)
    outages.cancel(instance_id=instance.pk, at=now)
    provider, account = provider_for(instance), instance.account()
    if "pairing" not in provider.supports:  # it was never ours to delete
        status.move(instance_id=instance.pk, to=status.REMOVED, at=now)
        return
    # The webhook first: Evolution deletes only after it has delivered that news, and repeats it for 20 minutes.
    for call in (provider.set_hook(account, None), provider.logout(account), provider.delete(account)):
        _ask_unless_gone(call)
    _wait_until_gone(instance)
    status.move(instance_id=instance.pk, to=status.REMOVED, at=now)


# --- what the provider says -------------------------------------------------------------------------------


def by_hook_token(token: str) -> Instance | None:
    """The instance whose webhook has this secret, unless it is removed.

    Found by the secret's digest: how long it takes says nothing about how much of a guess was right.
    """
    present = Instance.objects.exclude(status=InstanceStatus.REMOVED).defer("credentials", "hook_token")
    return present.filter(hook_digest=hooks.digest_of(token)).first()


def apply_connection(*, instance: Instance, event: ConnectionEvent | Pairing, now: datetime) -> bool:
    """Takes in news of the connection. True when the status changed. No I/O; repetitions change nothing."""
    if isinstance(event, Pairing):
        return _apply_pairing(instance, event, now)
    return _APPLY[event.state](instance, event, now)


def _apply_pairing(instance: Instance, pairing: Pairing, now: datetime) -> bool:
    if pairing.already_open:
        return _open(instance, ConnectionEvent("open"), now)
    if pairing.exhausted:
        return _close(instance, "pairing_expired", now)
    if pairing.qr_code:
        _store_code(instance, pairing, now)
    return _connecting(instance, ConnectionEvent("connecting"), now)


def _store_code(instance: Instance, pairing: Pairing, now: datetime) -> None:
    """A code that is stored already keeps its time: asking for it again does not make it live longer."""
    waiting = Instance.objects.filter(pk=instance.pk).exclude(status__in=[status.OPEN, status.REMOVED])
    waiting.exclude(qr_code=pairing.qr_code).update(
        qr_code=pairing.qr_code,
        pairing_code=pairing.pairing_code[:20],
        qr_count=pairing.count or F("qr_count") + 1,
        qr_expires_at=now + QR_LIFE,
    )


def _connecting(instance: Instance, event: ConnectionEvent, now: datetime) -> bool:
    """Not for an open instance: events come in any order, and a late "connecting" would stop it for nothing.

    If it really lost its connection, the next send says so and costs no attempt.
    """
    return status.move(
        instance_id=instance.pk, to=status.CONNECTING, at=now, reason=event.reason, only_from=NOT_OPEN
    )


def _open(instance: Instance, event: ConnectionEvent, now: datetime) -> bool:
    with transaction.atomic():
        known = {"number": event.number, "owner_id": event.owner_id, "profile_name": event.profile_name[:120]}
        said = {name: value for name, value in known.items() if value}
        Instance.objects.filter(pk=instance.pk).exclude(**NO_CODE, **said).update(**NO_CODE, **said)
        return status.move(instance_id=instance.pk, to=status.OPEN, at=now, detail={"number": event.number})


def _closed(instance: Instance, event: ConnectionEvent, now: datetime) -> bool:
    return _close(instance, event.reason, now)


def _removed(instance: Instance, event: ConnectionEvent, now: datetime) -> bool:
    """Deleted at the provider, but not by us: the tenant may connect it again."""
    return _close(instance, REMOVED_AT_PROVIDER, now)


def _close(instance: Instance, reason: str, now: datetime) -> bool:
    with transaction.atomic():
        Instance.objects.filter(pk=instance.pk).exclude(**NO_CODE).update(**NO_CODE)
        return status.move(instance_id=instance.pk, to=status.CLOSED, at=now, reason=reason)


_APPLY = {"connecting": _connecting, "open": _open, "closed": _closed, "removed": _removed}


# --- at the provider --------------------------------------------------------------------------------------


def _insert(tenant: Tenant, name: str, now: datetime) -> Instance:
    token = hooks.new_token()
    try:
        with transaction.atomic():
            instance = Instance.objects.create(
                tenant=tenant,
                name=name,
                server=servers.choose(),
                provider_name=provider_name(tenant, name),
                hook_token=token,
                hook_digest=hooks.digest_of(token),
                status_changed_at=now,
                created_at=now,
            )
            Lane.objects.create(instance=instance, next_send_at=now)
    except IntegrityError:
        raise NameTakenError(_("There is an instance of that name."), fields={"name": [name]}) from None
    return instance


def provider_name(tenant: Tenant, name: str) -> str:
    """Readable for an operator, and never used twice: [a-z0-9-], 40 characters at most."""
    readable = re.sub(r"[^a-z0-9]+", "-", f"{tenant.slug[:14]}-{name[:14]}".lower()).strip("-")
    return f"{readable}-{secrets.token_hex(5)}"


def _build(instance: Instance, now: datetime) -> None:
    made = _ask(provider_for(instance).create(instance.account(), hook=hooks.config_of(instance)))
    if not made:  # it was there, and with which webhook is not known
        _ask(provider_for(instance).set_hook(instance.account(), hooks.config_of(instance)))
    detail = {"provider_id": made.get("instanceId", "")}
    status.note(instance_id=instance.pk, kind="created", at=now, detail=detail)


def _ask(call: Call[T]) -> T:
    try:
        return perform(call)
    except ProviderError as error:
        raise ConnectingError(error) from error


def _ask_unless_gone(call: Call[None]) -> None:
    try:
        _ask(call)
    except ConnectingError as error:
        if error.code != INSTANCE_REMOVED:
            raise


def _wait_until_gone(instance: Instance) -> None:
    for _attempt in range(GONE_TRIES):
        try:
            _ask(provider_for(instance).state(instance.account()))
        except ConnectingError as error:
            if error.code == INSTANCE_REMOVED:
                return
            raise
        time.sleep(GONE_PAUSE)
    raise StillThereError(_("The provider is still removing it. Try again in a moment."))
