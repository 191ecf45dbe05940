"""Who agreed to be written to. Consent belongs to a telephone, whichever way its number is written."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils.translation import gettext as _

from accounts import events
from accounts.models import Scope, Tenant
from messaging.models import Contact, OptIn
from messaging.numbers import variants
from pilot import sql
from pilot.errors import PilotError


class OptInRequired(PilotError):
    """Nobody recorded that the recipient agreed."""

    code = "opt_in_required"
    status = 403


class OptedOut(PilotError):
    """The recipient asked not to receive messages; nothing lifts that but a new opt-in."""

    code = "opted_out"
    status = 403


class SkipNotAllowed(PilotError):
    """The key may not skip the check."""

    code = "forbidden"
    status = 403


class Consent(NamedTuple):
    """What is on record of one form of a number."""

    granted_at: datetime | None
    revoked_at: datetime | None


_CONSENTS = """
SELECT o.tenant_id, o.number, o.granted_at, o.revoked_at
FROM unnest(%s::bigint[], %s::text[]) AS wanted (tenant_id, number)
JOIN messaging_optin o ON o.tenant_id = wanted.tenant_id AND o.number = wanted.number
"""


def consents_of(wanted: Collection[tuple[int, str]]) -> dict[tuple[int, str], list[Consent]]:
    """What is on record of many (tenant's id, number in E.164), in whichever form; none where nothing is."""
    if not wanted:
        return {}
    forms = {tenant_number: variants(tenant_number[1]) for tenant_number in wanted}
    pairs = {(tenant_id, form) for (tenant_id, _number), known in forms.items() for form in known}
    rows = sql.fetch(_CONSENTS, sql.transposed(pairs))
    records = {(tenant_id, form): Consent(*rest) for tenant_id, form, *rest in rows}
    return {
        (tenant_id, number): [records[tenant_id, form] for form in known if (tenant_id, form) in records]
        for (tenant_id, number), known in forms.items()
    }


def assert_destination_authorized(
    *, consents: Collection[Consent], skip: bool = False, scopes: Collection[str] = ()
) -> None:
    """Returns when a number with these `consents` may be written to; every category asks, one-time codes too.

    `skip` waives the missing opt-in for a key whose `scopes` allow it, never an opt-out.
    Raises OptedOut, SkipNotAllowed or OptInRequired.
    """
    if skip and Scope.SKIP_OPT_IN not in scopes:
        raise SkipNotAllowed(
            _("This key does not have the scope %(scope)s.") % {"scope": Scope.SKIP_OPT_IN.value},
            fields={"skip_opt_in_validation": [_("This key may not skip the opt-in.")]},
        )
    if any(consent.revoked_at for consent in consents):
        raise OptedOut(_("The recipient asked not to receive messages."), fields={"to": [_("Opted out.")]})
    if not skip and not any(consent.granted_at for consent in consents):
        raise OptInRequired(
            _("The recipient has not agreed to receive messages yet."), fields={"to": [_("No opt-in.")]}
        )


def record_of(*, tenant_id: int, number: str) -> OptIn | None:
    """What is on record of a person's consent; an opt-out before anything else."""
    rows = OptIn.objects.filter(tenant_id=tenant_id, number__in=variants(number))
    return rows.order_by(F("revoked_at").desc(nulls_last=True), "-granted_at").first()


def opted_out(*, tenant_id: int, number: str) -> bool:
    """Whether the telephone's owner asked not to be written to. Asked again at the moment of sending."""
    return OptIn.objects.filter(
        tenant_id=tenant_id, number__in=variants(number), revoked_at__isnull=False
    ).exists()


@transaction.atomic
def grant(*, tenant: Tenant, number: str, source: str, now: datetime, evidence: str = "") -> OptIn:
    """Records consent of a person, who becomes a contact; it also ends an earlier opt-out."""
    consent = {"source": source, "evidence": evidence, "granted_at": now, "revoked_at": None}
    _introduce(tenant, number, now)
    record, _created = OptIn.objects.update_or_create(
        tenant=tenant, number=variants(number)[0], defaults=consent
    )
    _records(tenant, number).update(revoked_at=None)
    _note(record, source=source, at=now)
    return record


@transaction.atomic
def grant_new(*, tenant: Tenant, number: str, source: str, now: datetime, evidence: str = "") -> bool:
    """Records consent unless anything is on record of the person: a list that somebody has does not undo what a
    person said. False when something was."""
    if record_of(tenant_id=tenant.pk, number=number):
        return False
    grant(tenant=tenant, number=number, source=source, now=now, evidence=evidence)
    return True


@transaction.atomic
def revoke(*, tenant: Tenant, number: str, source: str, now: datetime) -> OptIn:
    """Records an opt-out, also for someone who never opted in."""
    refusal = {"revoked_at": now}
    _introduce(tenant, number, now)
    record, _created = OptIn.objects.update_or_create(
        tenant=tenant,
        number=variants(number)[0],
        defaults=refusal,
        create_defaults=refusal | {"source": source},
    )
    _records(tenant, number).update(revoked_at=now)
    _note(record, source=source, at=now)
    return record


def _introduce(tenant: Tenant, number: str, now: datetime) -> None:
    """Makes a contact of the person. Before the consent, as everybody does who writes both: so nobody deadlocks."""
    Contact.objects.get_or_create(tenant=tenant, number=variants(number)[0], defaults={"created_at": now})


def _note(record: OptIn, *, source: str, at: datetime) -> None:
    """Lets the tenant's programs know."""
    data = {
        "number": record.number,
        "status": "revoked" if record.revoked_at else "granted",
        "source": source,
    }
    events.record(
        tenant_id=record.tenant_id,
        kind="optin.changed",
        data=data,
        at=at,
        subject=f"number:{record.number}",
    )


def _records(tenant: Tenant, number: str) -> QuerySet[OptIn]:
    return OptIn.objects.filter(tenant=tenant, number__in=variants(number))
