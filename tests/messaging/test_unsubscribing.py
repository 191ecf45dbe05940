"""People who write that they want to be left alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from accounts.models import Project, Tenant
from instances.models import Instance
from messaging import opt_ins, receiving, unsubscribing
from messaging.accepting import Order, submit
from messaging.claiming import claim
from messaging.composing import Submission
from messaging.intents import NO_STAY, YES_STOP
from messaging.models import Contact, Message, OptIn
from messaging.storing import store
from tests import factories
from tests.messaging.test_receiving import written
from tests.waits import until_somebody_waits

pytestmark = pytest.mark.django_db

ANA = "+5511999990000"


@pytest.fixture
def instance(db: None) -> Instance:
    project = factories.make_project()
    factories.make_opt_in(project.tenant, ANA)
    return factories.make_instance(project.tenant)


def hear(instance: Instance, text: str, *, provider_message_id: str = "A1", **fields: Any) -> None:
    values = {"sender_number": ANA, "text": text, "provider_message_id": provider_message_id} | fields
    receiving.apply([written(instance, **values)])


def out(instance: Instance) -> bool:
    return opt_ins.opted_out(tenant_id=instance.tenant_id, number=ANA)


def test_is_believed_at_once_and_told_once(instance: Instance) -> None:
    hear(instance, "SAIR")
    hear(instance, "sair", provider_message_id="A2")

    assert out(instance)
    answer = Message.objects.get()
    assert (answer.to, answer.instance, answer.source, answer.urgent) == (ANA, instance, "opt_out", True)


def test_believes_a_mexican_whose_number_whatsapp_writes_with_a_1(instance: Instance) -> None:
    hear(instance, "SAIR", sender_number="+5215512345678")
    assert opt_ins.opted_out(tenant_id=instance.tenant_id, number="+525512345678")
    assert OptIn.objects.filter(
        number="+525512345678", revoked_at__isnull=False
    ).exists()  # what a claim asks


def test_the_confirmation_goes_out_although_nothing_else_does(instance: Instance) -> None:
    waiting = factories.make_message(Project.objects.get(), instance, to=ANA, status="queued", urgent=True)
    Message.objects.filter(pk=waiting.pk).update(deliver_until=timezone.now() + timedelta(minutes=1))
    hear(instance, "SAIR")

    claimed = [each.message.id for _ in range(2) for each in claim([instance.pk], now=timezone.now())]

    assert claimed == [Message.objects.get(source="opt_out").pk]
    waiting.refresh_from_db()
    assert (waiting.status, waiting.failure_code) == ("failed", "opted_out")


def test_repeated_news_does_not_undo_a_new_consent(instance: Instance) -> None:
    hear(instance, "SAIR")
    opt_ins.grant(tenant=instance.tenant, number=ANA, source="form", now=timezone.now())
    hear(instance, "SAIR")
    assert not out(instance)


def test_asks_once_a_day_where_it_is_not_sure_and_believes_the_answer(instance: Instance) -> None:
    hear(instance, "cancelar")
    hear(instance, "chega", provider_message_id="A2")

    question = Message.objects.get()
    assert [button["label"] for button in question.content["buttons"]] == [YES_STOP, NO_STAY]
    assert not out(instance)
    hear(instance, NO_STAY, provider_message_id="A3")
    assert not out(instance)
    hear(instance, YES_STOP, provider_message_id="A4")
    assert out(instance)


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "Pode parar na portaria"},
        {"text": "SAIR", "sender_number": ""},
        {"text": "SAIR", "outgoing": True},
    ],
)
def test_leaves_all_else_alone(instance: Instance, fields: dict[str, Any]) -> None:
    hear(instance, **fields)
    assert not out(instance)
    assert not Message.objects.exists()


def test_concerns_one_tenant_only(instance: Instance) -> None:
    key, _raw = factories.make_sender()
    hear(instance, "SAIR")
    own = Submission(to=ANA, content={"text": "Oi"})
    assert submit(Order(key, own), now=timezone.now()).message.pk


# --- beside others ----------------------------------------------------------------------------------------


def test_answers_all_of_a_batch_in_one_statement(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each statement counts usage in a row of its own: two transactions of several could each hold the other's."""
    sizes: list[int] = []
    monkeypatch.setattr(unsubscribing, "store", lambda entries: sizes.append(len(entries)) or store(entries))
    receiving.apply(
        [
            written(
                instance, sender_number=f"+551199999000{place}", text="SAIR", provider_message_id=f"A{place}"
            )
            for place in range(3)
        ]
    )
    assert sizes == [3]
    assert Message.objects.filter(source="opt_out").count() == 3


@pytest.mark.django_db(transaction=True)
def test_does_not_deadlock_with_somebody_who_records_a_consent(transactional_db: None) -> None:
    """Of a person whom neither knew: the contact comes first, for both."""
    tenant = factories.make_tenant()
    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        Contact.objects.create(tenant=tenant, number=ANA, created_at=timezone.now())
        other = pool.submit(_grant, tenant)
        until_somebody_waits()
        opt_ins.revoke(tenant=tenant, number=ANA, source="whatsapp", now=timezone.now())
        transaction.on_commit(lambda: other.result(timeout=10))
    assert OptIn.objects.get().granted_at is not None


def _grant(tenant: Tenant) -> None:
    try:
        opt_ins.grant(tenant=tenant, number=ANA, source="form", now=timezone.now())
    finally:
        connection.close()
