"""Consent."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from accounts.models import Event, Scope, Tenant
from messaging import opt_ins
from messaging.models import OptIn
from tests import factories

pytestmark = pytest.mark.django_db

NUMBER = "+5547988887777"
WITHOUT_NINTH = "+554788887777"


@pytest.fixture
def tenant() -> Tenant:
    return factories.make_tenant()


def allow(tenant: Tenant, number: str = NUMBER, *, skip: bool = False, scopes: tuple[str, ...] = ()) -> None:
    consents = opt_ins.consents_of([(tenant.pk, number)])[tenant.pk, number]
    opt_ins.assert_destination_authorized(consents=consents, skip=skip, scopes=scopes)


def test_refuses_whom_nobody_asked(tenant: Tenant) -> None:
    with pytest.raises(opt_ins.OptInRequired):
        allow(tenant)


def test_lets_pass_who_agreed(tenant: Tenant, now: datetime) -> None:
    opt_ins.grant(tenant=tenant, number=NUMBER, source="form", now=now)
    allow(tenant)


def test_takes_consent_of_another_tenant_for_nothing(tenant: Tenant, now: datetime) -> None:
    opt_ins.grant(tenant=factories.make_tenant(), number=NUMBER, source="form", now=now)
    with pytest.raises(opt_ins.OptInRequired):
        allow(tenant)


@pytest.mark.parametrize(("recorded", "asked"), [(NUMBER, WITHOUT_NINTH), (WITHOUT_NINTH, NUMBER)])
def test_knows_a_telephone_with_and_without_its_ninth_digit(
    tenant: Tenant, now: datetime, recorded: str, asked: str
) -> None:
    factories.make_opt_in(tenant, recorded)
    allow(tenant, asked)

    OptIn.objects.update(revoked_at=now)
    with pytest.raises(opt_ins.OptedOut):
        allow(tenant, asked)
    assert opt_ins.opted_out(tenant_id=tenant.pk, number=asked)


def test_lets_a_key_with_the_scope_skip_the_check(tenant: Tenant) -> None:
    allow(tenant, skip=True, scopes=(Scope.SKIP_OPT_IN,))


def test_tells_which_scope_is_missing(tenant: Tenant) -> None:
    with pytest.raises(opt_ins.SkipNotAllowed, match="messages:skip_opt_in"):
        allow(tenant, skip=True, scopes=(Scope.MESSAGES_WRITE,))


def test_never_lets_anyone_skip_an_opt_out(tenant: Tenant, now: datetime) -> None:
    opt_ins.revoke(tenant=tenant, number=NUMBER, source="reply", now=now)
    with pytest.raises(opt_ins.OptedOut):
        allow(tenant, skip=True, scopes=tuple(Scope.values))


def test_records_an_opt_out_of_someone_unknown(tenant: Tenant, now: datetime) -> None:
    record = opt_ins.revoke(tenant=tenant, number=WITHOUT_NINTH, source="reply", now=now)
    assert (record.number, record.granted_at, record.source) == (NUMBER, None, "reply")


def test_keeps_how_consent_was_given_when_it_ends(tenant: Tenant, now: datetime) -> None:
    opt_ins.grant(tenant=tenant, number=NUMBER, source="form", evidence="order 1042", now=now)
    record = opt_ins.revoke(tenant=tenant, number=NUMBER, source="reply", now=now + timedelta(days=1))
    assert (record.source, record.evidence, record.granted_at) == ("form", "order 1042", now)


def test_opens_again_with_a_new_consent(tenant: Tenant, now: datetime) -> None:
    opt_ins.revoke(tenant=tenant, number=NUMBER, source="reply", now=now)
    opt_ins.grant(tenant=tenant, number=NUMBER, source="form", now=now)
    allow(tenant)
    assert not opt_ins.opted_out(tenant_id=tenant.pk, number=NUMBER)


def test_revokes_and_grants_every_form_on_record(tenant: Tenant, now: datetime) -> None:
    factories.make_opt_in(tenant, WITHOUT_NINTH)
    opt_ins.revoke(tenant=tenant, number=NUMBER, source="reply", now=now)
    assert OptIn.objects.filter(revoked_at=now).count() == 2

    opt_ins.grant(tenant=tenant, number=NUMBER, source="form", now=now)
    allow(tenant, WITHOUT_NINTH)


def test_tells_the_tenants_programs_what_changed(tenant: Tenant, now: datetime) -> None:
    opt_ins.grant(tenant=tenant, number=NUMBER, source="form", now=now)
    opt_ins.revoke(tenant=tenant, number=WITHOUT_NINTH, source="whatsapp", now=now)

    told = list(Event.objects.filter(tenant=tenant).order_by("id"))
    assert [event.kind for event in told] == ["optin.changed", "optin.changed"]
    assert [(event.detail["status"], event.detail["source"]) for event in told] == [
        ("granted", "form"),
        ("revoked", "whatsapp"),
    ]
    assert len({event.detail["number"] for event in told}) == 1
    assert len({event.subject for event in told}) == 1
