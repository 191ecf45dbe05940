"""A tenant's own people are told of its alerts, each in their language, by e-mail and by WhatsApp."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from accounts.models import Role, Tenant
from instances.models import DefaultInstance, Instance
from messaging import opt_ins
from messaging.models import IdempotencyKey, Message
from pilot.alerts import delivering, raise_alert
from pilot.alerts.delivering import deliver
from pilot.models import AlertDelivery
from tests.factories import NOW, make_instance, make_project, make_tenant
from tests.members import make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant(settings: Any) -> Tenant:
    settings.EMAIL_URL = "smtp://localhost"
    return make_tenant(name="Loja Azul")


@pytest.fixture
def system(settings: Any) -> Instance:
    """The instance of those who run Pilot, and two projects in its tenant."""
    ours = make_tenant(slug="nos")
    make_project(ours)
    instance = make_instance(ours, name="avisos")
    DefaultInstance.objects.create(project=make_project(ours, name="Alertas"), instance=instance)
    settings.ALERT_WHATSAPP_INSTANCE = "nos/avisos"
    return instance


def told(channel: str) -> list[str]:
    return list(AlertDelivery.objects.filter(channel=channel).values_list("recipient", flat=True))


def test_mails_owners_and_administrators_in_their_language(tenant: Tenant) -> None:
    make_user(tenant, role=Role.OWNER, email="dona@example.com")
    make_user(tenant, role=Role.ADMIN, email="admin@example.com", alert_language="en")
    make_user(tenant, role=Role.AGENT, email="agente@example.com")
    make_user(make_tenant(), role=Role.OWNER, email="outra@example.com")
    former = make_user(tenant, role=Role.OWNER, email="saiu@example.com")
    type(former).objects.filter(pk=former.pk).update(is_active=False)

    raise_alert("instance_down", 7, tenant_id=tenant.pk, detail={"name": "vendas"})
    deliver("member_email")

    assert [(message.to, message.subject) for message in mail.outbox] == [
        (["dona@example.com"], "[Pilot] Instância desconectada · Loja Azul"),
        (["admin@example.com"], "[Pilot] Instance disconnected · Loja Azul"),
    ]


def test_mails_nobody_without_a_mail_server(tenant: Tenant, settings: Any) -> None:
    settings.EMAIL_URL = ""
    make_user(tenant)

    raise_alert("instance_down", 7, tenant_id=tenant.pk)

    assert not told("member_email")


@pytest.mark.parametrize("kind", ["dead_letter", "worker_not_consuming", "reconciler_found_many"])
def test_tells_a_tenant_nothing_of_the_machinery(tenant: Tenant, kind: Any) -> None:
    make_user(tenant)

    raise_alert(kind, "x", tenant_id=tenant.pk)

    assert not told("member_email")


def test_writes_to_the_numbers_of_those_who_gave_one(tenant: Tenant, system: Instance) -> None:
    make_user(tenant, role=Role.OWNER, alert_number="+5511999990001", alert_language="en")
    make_user(tenant, role=Role.ADMIN)
    raise_alert("instance_down", 7, tenant_id=tenant.pk, detail={"name": "vendas"})

    assert told("whatsapp") == ["+5511999990001"]
    assert deliver("whatsapp") == 1

    message = Message.objects.get()
    assert (message.instance, message.to, message.project.name) == (system, "+5511999990001", "Alertas")
    assert (message.status, message.category) == ("queued", "utility")
    assert message.content["text"].startswith("*Instance disconnected · Loja Azul*\nThe instance “vendas” is")


def test_writes_once_to_a_number_that_two_people_share(tenant: Tenant, system: Instance) -> None:
    for _ in range(2):
        make_user(tenant, alert_number="+5511999990001")

    assert raise_alert("instance_down", 7, tenant_id=tenant.pk)
    assert told("whatsapp") == ["+5511999990001"]


def test_a_message_is_not_accepted_twice(tenant: Tenant, system: Instance) -> None:
    make_user(tenant, alert_number="+5511999990001")
    raise_alert("instance_down", 7, tenant_id=tenant.pk)
    now = timezone.now()

    for number in range(2):  # the first died before it could write down that it had been accepted
        delivering.send(delivering.take("whatsapp", now=now + number * delivering.LEASE))
        AlertDelivery.objects.update(state="waiting", next_attempt_at=now)

    assert Message.objects.count() == IdempotencyKey.objects.count() == 1


def test_does_not_tell_through_an_instance_that_it_is_down(system: Instance) -> None:
    make_user(system.tenant, alert_number="+5511999990001")
    other = make_instance(system.tenant)

    raise_alert("instance_down", system.pk, tenant_id=system.tenant_id)
    assert not told("whatsapp")

    raise_alert("instance_down", other.pk, tenant_id=system.tenant_id)
    assert told("whatsapp") == ["+5511999990001"]


def test_respects_who_does_not_want_to_be_written_to(tenant: Tenant, system: Instance) -> None:
    make_user(tenant, alert_number="+5511999990001")
    opt_ins.revoke(tenant=system.tenant, number="+5511999990001", source="reply", now=NOW)
    raise_alert("instance_down", 7, tenant_id=tenant.pk)

    deliver("whatsapp")

    delivery = AlertDelivery.objects.get(channel="whatsapp")
    assert delivery.state == "failed"
    assert delivery.error.startswith("opted_out")


def test_an_instance_that_is_not_there_keeps_no_mail_from_being_sent(tenant: Tenant, settings: Any) -> None:
    settings.ALERT_WHATSAPP_INSTANCE = "nos/nenhuma"
    make_user(tenant, alert_number="+5511999990001", email="dona@example.com")

    assert raise_alert("instance_down", 7, tenant_id=tenant.pk)

    assert (told("whatsapp"), told("member_email")) == ([], ["dona@example.com"])
