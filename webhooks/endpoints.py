"""A tenant's endpoints: made, changed, switched off and on, and their secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from accounts.models import Event, Project, Tenant
from messaging.models import MessageEvent
from pilot import alerts, outbox, ssrf
from pilot.errors import PilotError
from webhooks import signing
from webhooks.catalogue import TYPES, VERSIONS
from webhooks.models import DisabledBy, WebhookDelivery, WebhookEndpoint, WebhookReplay

MOST_ENDPOINTS = 50  # of a tenant, for each environment
MOST_HEADERS = 20
SWEPT_AT_ONCE = 1000
MOST_SECRETS = 3  # at a time: the one, and those it replaced
LONGEST_OVERLAP = timedelta(days=7)
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
HEADER_VALUE = re.compile(r"[\x20-\x7e]{1,1000}")
# Ours, or what frames the request.
RESERVED = re.compile(
    r"(?i)webhook-.*|host|content-(length|type|encoding)|transfer-encoding|connection|upgrade|te|trailer|expect|"
    r"keep-alive|proxy-.*|user-agent|accept-encoding"
)


class InvalidEndpoint(PilotError):
    """A field is not acceptable; `fields` says which and why."""


class CreatedBefore(PilotError):
    """The form was sent twice. Its endpoint exists, and its secret was in the first answer."""

    code = "created_before"
    status = 409


class TooManyEndpoints(PilotError):
    """The tenant has as many as it may."""

    code = "too_many_endpoints"
    status = 409


class TooManySecrets(PilotError):
    """Too many replaced secrets still work."""

    code = "too_many_secrets"
    status = 409


def create(
    *,
    tenant: Tenant,
    environment: str,
    url: str,
    now: datetime,
    project: Project | None = None,
    types: Sequence[str] = (),
    description: str = "",
    headers: Mapping[str, str] | None = None,
    version: str = VERSIONS[-1],
    once: UUID | None = None,
) -> tuple[WebhookEndpoint, str]:
    """Makes an endpoint. Returns it with its secret, which is not shown again.

    Without `types` it is told everything, without `project` of all projects. Raises InvalidEndpoint, TooManyEndpoints,
    or CreatedBefore when the tenant has an endpoint with this `once`.
    """
    _check(url=url, types=types, headers=headers or {}, version=version)
    secret = signing.new_secret()
    values: dict[str, Any] = {
        "url": url,
        "description": description,
        "types": list(types),
        "version": version,
        "headers": dict(headers or {}),
        "secrets": [{"secret": secret, "ends_at": None}],
        "created_at": now,
        "once": once,
        "messages_after": outbox.numbered(MessageEvent),
        "events_after": outbox.numbered(Event),
    }
    with transaction.atomic():
        Tenant.objects.select_for_update(no_key=True).only("pk").get(pk=tenant.pk)  # one count at a time
        mine = WebhookEndpoint.present.filter(tenant=tenant)
        if once and mine.filter(once=once).exists():
            raise CreatedBefore(_("This webhook was made before. Its secret is shown only once."))
        if mine.filter(environment=environment).count() >= MOST_ENDPOINTS:
            message = _("There may be at most %(most)s endpoints.") % {"most": MOST_ENDPOINTS}
            raise TooManyEndpoints(message)
        endpoint = WebhookEndpoint.objects.create(
            tenant=tenant, project=project, environment=environment, **values
        )
    return endpoint, secret


def change(endpoint: WebhookEndpoint, **values: Any) -> WebhookEndpoint:
    """Changes url, description, types, headers, version or project. Raises InvalidEndpoint.

    What is already on its way goes to the new URL.
    """
    _check(
        **{name: value for name, value in values.items() if name in {"url", "types", "headers", "version"}}
    )
    for name, value in values.items():
        setattr(endpoint, name, value)
    endpoint.save(update_fields=list(values))
    return endpoint


@transaction.atomic
def rotate(endpoint: WebhookEndpoint, *, overlap: timedelta, now: datetime) -> str:
    """Gives the endpoint a new secret, which is returned; those before it work for `overlap` more, at most.

    Raises TooManySecrets while three of them work.
    """
    locked = WebhookEndpoint.objects.select_for_update(no_key=True).get(pk=endpoint.pk)
    secret = signing.new_secret()
    kept = signing.rotated(locked.secrets, secret, ends_at=now + min(overlap, LONGEST_OVERLAP), now=now)
    if len(kept) > MOST_SECRETS:
        raise TooManySecrets(
            _("Two replaced secrets still work. Wait until one has ended, or end them now with no overlap.")
        )
    locked.secrets = endpoint.secrets = kept
    locked.save(update_fields=["secrets"])
    return secret


def disable(endpoint: WebhookEndpoint, *, now: datetime, by: str = DisabledBy.PERSON) -> bool:
    """Switches an endpoint off: nothing is sent there, and no new deliveries are made. False when it was off."""
    on = WebhookEndpoint.objects.filter(pk=endpoint.pk, disabled_at=None)
    return on.update(disabled_at=now, disabled_by=by) == 1


@transaction.atomic
def enable(endpoint: WebhookEndpoint, *, now: datetime, catch_up: bool = False) -> bool:
    """Switches an endpoint on again, with a clean record: what waits there goes out. False when it was on.

    `catch_up` also orders what happened while it was off.
    """
    off = WebhookEndpoint.objects.select_for_update(no_key=True).filter(
        pk=endpoint.pk, disabled_at__isnull=False
    )
    since = off.values_list("disabled_at", flat=True).first()
    if since is None:
        return False
    clean = {"failing_since": None, "silent_calls": 0, "open_until": None}
    WebhookEndpoint.objects.filter(pk=endpoint.pk).update(disabled_at=None, disabled_by="", **clean)
    if catch_up:
        WebhookReplay.objects.create(endpoint=endpoint, since=since, until=now, created_at=now)
    alerts.recover("webhook_endpoint_disabled", str(endpoint.pk), now=now)
    return True


@transaction.atomic
def remove(endpoint: WebhookEndpoint, *, now: datetime) -> None:
    """Removes an endpoint with its secrets. What is left of it goes bit by bit, see sweep()."""
    disable(endpoint, now=now)
    WebhookEndpoint.objects.filter(pk=endpoint.pk).update(removed_at=now, secrets=[], headers={}, once=None)
    alerts.recover("webhook_endpoint_disabled", str(endpoint.pk), silently=True)


def sweep() -> int:
    """Deletes a bit of the log of a removed endpoint, at the end the endpoint itself. Returns how many rows went."""
    endpoint = WebhookEndpoint.objects.filter(removed_at__isnull=False).defer("headers", "secrets").first()
    if endpoint is None:
        return 0
    some = list(endpoint.deliveries.order_by("id").values_list("pk", flat=True)[:SWEPT_AT_ONCE])
    WebhookDelivery.objects.filter(pk__in=some).delete()
    if not some:
        endpoint.delete()
    return len(some) or 1


def disabled_by_pilot(tenant: Tenant) -> QuerySet[WebhookEndpoint]:
    """The endpoints that somebody must look at, because Pilot switched them off."""
    return WebhookEndpoint.present.filter(tenant=tenant, disabled_at__isnull=False).exclude(
        disabled_by=DisabledBy.PERSON
    )


def told_of(endpoint: WebhookEndpoint) -> Q:
    """The condition that a WebhookEvent of the endpoint's tenant must meet to be for it."""
    wanted = Q(environment__in=["", endpoint.environment], sample=False)
    if endpoint.project_id:
        wanted &= Q(project=None) | Q(project=endpoint.project_id)
    if endpoint.types:
        wanted &= Q(type__in=endpoint.types)
    return wanted


def _check(
    *,
    url: str | None = None,
    types: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    version: str | None = None,
) -> None:
    faults: dict[str, list[str]] = {}
    if url is not None and (fault := _url_fault(url)):
        faults["url"] = [fault]
    if unknown := sorted(set(types) - set(TYPES)):
        faults["types"] = [_("There is no event %(name)s.") % {"name": ", ".join(unknown)[:200]}]
    if fault := _headers_fault(headers or {}):
        faults["headers"] = [fault]
    if version is not None and version not in VERSIONS:
        faults["version"] = [_("There is no such version.")]
    if faults:
        raise InvalidEndpoint(_("Some fields are not valid."), fields=faults)


def _url_fault(url: str) -> str:
    try:
        ssrf.check_url(url, ssrf.policy())
    except ssrf.Refused as error:
        return error.reason
    return ""


def _headers_fault(headers: Mapping[str, str]) -> str:
    if len(headers) > MOST_HEADERS:
        return _("There may be at most %(most)s headers.") % {"most": MOST_HEADERS}
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name) or RESERVED.fullmatch(name):
            return _("The header %(name)s cannot be set.") % {"name": name[:64]}
        if not isinstance(value, str) or not HEADER_VALUE.fullmatch(value):
            return _("The value of %(name)s must be 1 to 1,000 visible ASCII characters.") % {"name": name}
    return ""
