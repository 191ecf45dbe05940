"""Every operation of the Python clients once, on the running server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from pilot_client import Conflict, InvalidRequest, NotCancellable, NotFound, Pilot, StillWaiting

from accounts.models import Scope
from instances.models import EvolutionServer, Instance
from messaging.models import Message, Status
from tests import factories
from tests.clients.conftest import Account
from tests.sandbox.emulator import Emulator
from tests.sandboxes import server_of
from tests.webhooks.tellings import make_endpoint, tell
from webhooks.models import WebhookDelivery

ANA = "+5511999990000"


# --- messages ---------------------------------------------------------------------------------------------


def test_sends_a_message_and_reads_it_again(pilot: Pilot) -> None:
    later = timezone.now() + timedelta(minutes=5)
    sent = pilot.messages.send(
        ANA, text="Olá", urgent=True, scheduled_at=later, metadata={"order": "1042"}, reference="order-1042"
    )
    assert (sent.status, sent.to, sent.urgent, sent.metadata) == ("queued", ANA, True, {"order": "1042"})
    assert sent.scheduled_at == later
    assert sent.created_at.utcoffset() == timedelta(0)
    assert pilot.messages.get(sent.id).reference == "order-1042"
    assert [event.kind for event in pilot.messages.events(sent.id)] == ["queued"]
    assert pilot.messages.why(sent.id).why
    assert sent.raw["id"] == sent.id


def test_sends_a_template(pilot: Pilot) -> None:
    sent = pilot.messages.send(ANA, template="pedido_enviado", variables={"nome": "Ana"})
    assert sent.template == "pedido_enviado"


def test_sends_many_of_which_some_are_refused(pilot: Pilot) -> None:
    until = timezone.now() + timedelta(minutes=5)
    result = pilot.messages.send_batch(
        [{"to": ANA, "text": "Olá", "deliver_until": until}, {"to": "nobody", "text": "Olá"}]
    )
    assert (result.accepted, result.refused) == (1, 1)
    good, bad = result.results
    assert good.message is not None
    assert good.message.deliver_until == until
    assert bad.error is not None
    assert (bad.error["code"], set(bad.error["fields"])) == ("invalid_number", {"to"})


def test_calls_a_message_back_once(pilot: Pilot, account: Account) -> None:
    sent = pilot.messages.send(ANA, text="Olá")
    assert pilot.messages.cancel(sent.id).status == "cancelled"
    assert pilot.messages.cancel(sent.id).cancelled_at is not None

    gone = _message(account, status=Status.SENT)
    with pytest.raises(NotCancellable):
        pilot.messages.cancel(gone.pk)


def test_lists_messages_over_pages(pilot: Pilot, account: Account) -> None:
    made = [_message(account, created_at=factories.NOW + timedelta(seconds=second)) for second in range(5)]
    listed = [message.id for message in pilot.messages.list(page_size=2)]
    assert listed == [message.pk for message in reversed(made)]


def test_filters_messages(pilot: Pilot) -> None:
    wanted = pilot.messages.send(ANA, text="Olá", metadata={"order id": "1042"}, reference="a")
    pilot.messages.send(ANA, text="Olá", metadata={"order id": "1043"}, reference="b")
    for filters in ({"metadata": {"order id": "1042"}}, {"reference": "a"}, {"to": ANA, "reference": "a"}):
        found: Any = pilot.messages.list(**filters)  # type: ignore[arg-type]
        assert [message.id for message in found] == [wanted.id]
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert list(pilot.messages.list(created_after=tomorrow)) == []


def test_waits_until_a_message_has_got_far_enough(pilot: Pilot, account: Account) -> None:
    read = _message(account, status=Status.READ)
    failed = _message(account, status=Status.FAILED, failure_code="rejected", failure_detail="bad media")
    waiting = _message(account)

    assert pilot.messages.wait(read.pk).status == "read"
    ended = pilot.messages.wait(failed.pk)
    assert ended.failure is not None
    assert (ended.failure.code, ended.failure.detail) == ("rejected", "bad media")
    with pytest.raises(StillWaiting) as raised:
        pilot.messages.wait(waiting.pk, within=0.05, every=0.02)
    assert raised.value.message.id == waiting.pk


# --- templates --------------------------------------------------------------------------------------------


def test_manages_templates(pilot: Pilot) -> None:
    made = pilot.templates.create("novo", category="utility", text="Oi {{nome}}", footer="Loja")
    assert made.current_version is not None
    assert made.current_version.variables == ["nome"]

    second = pilot.templates.add_version("novo", text="Olá {{nome}}", publish=False)
    assert [version.number for version in pilot.templates.versions("novo", page_size=1)] == [2, 1]
    assert pilot.templates.publish("novo", second.number).current_version == second
    assert pilot.templates.preview("novo", variables={"nome": "Ana"}).content["text"] == "Olá Ana"
    assert pilot.templates.archive("novo").status == "archived"
    assert [template.name for template in pilot.templates.list(status="archived")] == ["novo"]
    assert pilot.templates.restore("novo").status == "active"
    assert pilot.templates.get("novo").category == "utility"
    with pytest.raises(Conflict) as raised:
        pilot.templates.create("novo", category="utility", text="Oi")
    assert raised.value.code == "name_taken"


# --- people -----------------------------------------------------------------------------------------------


def test_keeps_people_and_their_consent(pilot: Pilot) -> None:
    bia = "+5547988887777"
    assert pilot.contacts.save("(47) 98888-7777", name="Bia").number == bia
    with pytest.raises(NotFound):
        pilot.contacts.opt_in(bia)

    assert pilot.contacts.grant(bia, source="checkout", evidence="ticked").granted_at is not None
    assert pilot.contacts.opt_in(bia).evidence == "ticked"
    assert pilot.contacts.revoke(bia, source="telephone").revoked_at is not None
    kept = pilot.contacts.get(bia)
    assert kept.opt_in is not None
    assert kept.opt_in.revoked_at is not None
    assert [contact.name for contact in pilot.contacts.list()] == ["Bia"]


def test_takes_in_and_gives_out_files_of_people(pilot: Pilot) -> None:
    imported = pilot.contacts.import_csv(b"number,name\n(47) 98888-7777,Bia\nx,Y\n")
    assert imported.taken == 1
    assert [(fault.row, fault.field) for fault in imported.refused] == [(2, "number")]
    assert b"+5547988887777,Bia" in pilot.contacts.export_csv()


def test_checks_numbers(pilot: Pilot) -> None:
    good, bad = pilot.numbers.check(["11 99999-0000", "nobody"])
    assert (good.number, good.country, good.type, good.on_whatsapp) == (ANA, "BR", "mobile", None)
    assert (bad.valid, bad.number) == (False, None)


# --- instances --------------------------------------------------------------------------------------------


def test_manages_instances(pilot: Pilot, account: Account, sandbox: Emulator) -> None:
    Instance.objects.all().update(server=server_of(sandbox))
    EvolutionServer.objects.exclude(url=sandbox.url).delete()

    made = pilot.instances.create("nova")
    assert (made.name, made.status, made.paused) == ("nova", "created", False)
    assert pilot.instances.pair("nova").status == "connecting"
    assert pilot.instances.pause("nova").paused
    assert not pilot.instances.resume("nova").paused
    assert "nova" in [instance.name for instance in pilot.instances.list(page_size=1)]
    assert "nova" in [queue.instance for queue in pilot.queues.list(page_size=1)]
    pilot.instances.restart("nova")
    pilot.instances.logout("nova")
    assert pilot.instances.get("nova").number == ""
    pilot.instances.remove("nova")
    with pytest.raises(NotFound):
        pilot.instances.get("nova")


def test_names_the_field_of_an_upload_that_its_instance_does_not_take(pilot: Pilot, account: Account) -> None:
    instance = Instance.objects.get(tenant=account.key.tenant)
    with pytest.raises(InvalidRequest) as raised:
        pilot.media.upload(b"%PDF-", instance=instance.name, filename="a.pdf", mime_type="application/pdf")
    assert raised.value.code == "no_upload"


# --- keys and usage ---------------------------------------------------------------------------------------


def test_manages_keys(pilot: Pilot, account: Account) -> None:
    issued = pilot.keys.issue("caixa", scopes=[Scope.MESSAGES_READ.value])
    assert issued.key.startswith(issued.prefix)
    assert issued.key not in repr(issued)
    rotated = pilot.keys.rotate(issued.prefix, overlap_seconds=60)
    assert pilot.keys.get(issued.prefix).state == "ending"
    pilot.keys.revoke(rotated.prefix)
    states = {key.prefix: key.state for key in pilot.keys.list(page_size=1)}
    assert states == {account.key.prefix: "active", issued.prefix: "ending", rotated.prefix: "revoked"}


def test_tells_the_usage(pilot: Pilot) -> None:
    pilot.messages.send(ANA, text="Olá")
    assert pilot.usage.get().accepted == 1
    assert (pilot.usage.get("2020-01").month, pilot.usage.get("2020-01").accepted) == ("2020-01", 0)


# --- webhooks ---------------------------------------------------------------------------------------------


def test_manages_webhooks(pilot: Pilot) -> None:
    made = pilot.webhooks.create("https://93.184.215.14/hook", types=["message.read"], headers={"X-A": "b"})
    assert made.secret is not None
    assert (made.types, made.header_names) == (["message.read"], ["X-A"])
    assert pilot.webhooks.change(made.id, description="CRM", enabled=False).enabled is False
    assert pilot.webhooks.change(made.id, enabled=True).description == "CRM"
    assert pilot.webhooks.rotate_secret(made.id).startswith("whsec_")
    assert pilot.webhooks.get(made.id).secret is None
    assert pilot.webhooks.examine(made.id, headers={}, body="{}") == "headers_missing"
    assert pilot.webhooks.test(made.id).type == "message.delivered"
    assert pilot.webhooks.replay(made.id, since=timezone.now() - timedelta(hours=1)).everything is False
    assert [endpoint.id for endpoint in pilot.webhooks.list()] == [made.id]
    assert "message.read" in [each.name for each in pilot.webhooks.event_types()]
    pilot.webhooks.remove(made.id)
    assert list(pilot.webhooks.list()) == []


def test_reads_and_repeats_deliveries(pilot: Pilot, account: Account) -> None:
    endpoint = make_endpoint(account.key.tenant, project=account.key.project)
    tell(endpoint, 3)
    WebhookDelivery.objects.filter(endpoint=endpoint).update(status="failed", finished_at=factories.NOW)

    listed = list(pilot.webhooks.deliveries(str(endpoint.pk), status="failed", page_size=2))
    assert len(listed) == 3
    one = pilot.webhooks.delivery(str(endpoint.pk), listed[0].id)
    assert one.raw["payload"]["type"] == one.type == "optin.changed"
    assert pilot.webhooks.resend(str(endpoint.pk), one.id).status == "pending"


def _message(account: Account, **fields: Any) -> Message:
    instance = Instance.objects.get(tenant=account.key.tenant)
    if fields.get("status") == Status.FAILED:
        fields["failed_at"] = factories.NOW
    return factories.make_message(account.key.project, instance, **fields)
