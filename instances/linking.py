"""Accounts that exist at Meta before they do here: they are checked with Meta, and then linked.

What the tenant has to enter at Meta afterwards (the address of the webhook, the verify token) is in meta_apps.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from accounts.models import Tenant
from instances import accounts, hooks, meta_apps, status
from instances.connecting import ConnectingError, NameTakenError, provider_name
from instances.models import Instance, InstanceStatus, Lane, MetaApp, Provider
from instances.providers import INSTAGRAM, META, provider_for
from instances.providers.base import Account, ProviderError
from instances.providers.http import perform
from pilot.errors import PilotError

# What Meta lets a number send; a higher level comes by itself with volume and quality.
STANDARD_RATE, HIGH_RATE = 80, 1000
INSTAGRAM_RATE = 200  # of 300 calls a second: typing and marking as seen count, too
IN_FLIGHT = {STANDARD_RATE: 50, HIGH_RATE: 500}


class AlreadyLinkedError(PilotError):
    """The account is linked already."""

    code = "already_linked"
    status = 409


def link_number(
    *,
    tenant: Tenant,
    name: str,
    phone_number_id: str,
    business_id: str,
    token: str,
    app_secret: str,
    now: datetime,
) -> Instance:
    """Links a number of the Cloud API that the token may use. It may send at once.

    Raises ConnectingError when Meta does not let us see it, NameTakenError and AlreadyLinkedError.
    """
    account = account_at(settings.META_GRAPH_URL, token, account_id=phone_number_id, business_id=business_id)
    described = _describe(account)
    app = meta_apps.app_for(tenant=tenant, secret=app_secret, name=name)
    rate = _rate(described)
    values = {
        "provider": Provider.META,
        "account_id": phone_number_id,
        "business_id": business_id,
        "credentials": {"token": token},
        "number": _number(described),
        "profile_name": str(described.get("verified_name") or "")[:120],
        "messages_per_second": rate,
        "concurrency": IN_FLIGHT[rate],
    }
    return insert(tenant=tenant, name=name, app=app, values=values, now=now)


def link_instagram(
    *, tenant: Tenant, name: str, account_id: str, page_id: str, token: str, app_secret: str, now: datetime
) -> Instance:
    """Links an Instagram professional account: with a `page_id` by way of its Facebook page, else by its own login.

    Raises ConnectingError when Meta does not let us see it, NameTakenError and AlreadyLinkedError.
    """
    host = settings.META_GRAPH_URL if page_id else settings.INSTAGRAM_GRAPH_URL
    try:
        described = perform(INSTAGRAM.describe(account_at(host, token, account_id=account_id)))
    except ProviderError as error:
        raise ConnectingError(error) from error
    values = {
        "provider": Provider.INSTAGRAM,
        "account_id": account_id,
        "business_id": page_id,
        "credentials": {"token": token, "host": host},
        "profile_name": str(described.get("username") or "")[:120],
        "messages_per_second": INSTAGRAM_RATE,
        "concurrency": IN_FLIGHT[STANDARD_RATE],
    }
    app = meta_apps.app_for(tenant=tenant, secret=app_secret, name=name)
    return insert(tenant=tenant, name=name, app=app, values=values, now=now)


def renew_token(*, instance: Instance, token: str, now: datetime) -> None:
    """Gives a linked account another token, and lets it send again at once where the old one was refused.

    Raises ConnectingError when Meta does not let us see the account with it: then the old one stays.
    """
    account = replace(instance.account(), api_key=token)
    try:
        perform(provider_for(instance).state(account))
    except ProviderError as error:
        raise ConnectingError(error) from error
    instance.credentials = instance.credentials | {"token": token}
    instance.save(update_fields=["credentials"])
    accounts.forget()
    status.note(instance_id=instance.pk, kind="token_renewed", at=now, detail={})
    status.move(instance_id=instance.pk, to=status.OPEN, at=now, only_from=[status.DEGRADED, status.CLOSED])


def insert(
    *, tenant: Tenant, name: str, app: MetaApp | None, values: Mapping[str, Any], now: datetime
) -> Instance:
    """An open instance of an account that is not connected by us, without a pace.

    Raises NameTakenError and AlreadyLinkedError.
    """
    token = hooks.new_token()
    row = Instance(
        tenant=tenant,
        name=name,
        app=app,
        provider_name=provider_name(tenant, name),
        hook_token=token,
        hook_digest=hooks.digest_of(token),
        status=InstanceStatus.OPEN,
        status_changed_at=now,
        created_at=now,
        pace_least_seconds=0,
        pace_most_seconds=0,
        urgent_gap_seconds=0,
        typing_ms=0,
        **values,
    )
    try:
        with transaction.atomic():
            row.save()
            Lane.objects.create(instance=row, next_send_at=now)
            status.note(instance_id=row.pk, kind=status.OPEN, at=now, detail={"number": row.number})
    except IntegrityError as error:
        raise _taken(error, name) from None
    return row


def _taken(error: IntegrityError, name: str) -> PilotError:
    if "instance_account_unique" in str(error):
        return AlreadyLinkedError(_("This account is linked already."))
    return NameTakenError(_("There is an instance of that name."), fields={"name": [name]})


def account_at(host: str, token: str, *, account_id: str, business_id: str = "") -> Account:
    """An account that is no instance yet."""
    return Account(
        name="",
        base_url=f"{host}/{settings.META_GRAPH_VERSION}",
        api_key=token,
        account_id=account_id,
        business_id=business_id,
    )


def _describe(account: Account) -> Mapping[str, Any]:
    try:
        perform(META.templates(account))  # shows that the token may manage the business account, too
        return perform(META.describe(account))
    except ProviderError as error:
        raise ConnectingError(error) from error


def _rate(described: Mapping[str, Any]) -> int:
    throughput = described.get("throughput")
    level = throughput.get("level") if isinstance(throughput, dict) else ""
    return HIGH_RATE if level == "HIGH" else STANDARD_RATE


def _number(described: Mapping[str, Any]) -> str:
    """E.164 of a number that Meta writes with or without +, spaces and dashes."""
    digits = "".join(filter(str.isdecimal, str(described.get("display_phone_number") or "")))
    return f"+{digits}"[:20] if digits else ""
