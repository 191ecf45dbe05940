"""The door that Meta calls, and what becomes of what it says."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from instances.models import InstanceEvent, MetaApp, MetaTemplate
from messaging.models import Contact, MessageEvent, OptIn, ParkedReceipt, ReceivedMessage, Window
from tests.factories import make_message
from tests.meta import delivery, make_app, make_meta_instance, of_message, of_status, post
from webhooks import meta
from webhooks.applying import apply_pending
from webhooks.models import InboundCall

pytestmark = pytest.mark.django_db


def apply(now: datetime) -> None:
    while apply_pending(now=now):
        pass


def take(app: MetaApp, payload: Any, now: datetime) -> None:
    assert post(app, payload).status_code == 200
    apply(now)


# --- the door ---------------------------------------------------------------------------------------------


def greet(app: MetaApp, **query: str) -> Any:
    named = {f"hub.{name}": value for name, value in query.items()}
    return Client().get(f"/hooks/meta/{app.hook_token}", named)


def test_answers_the_handshake_without_a_signature() -> None:
    app = make_app()

    answer = greet(app, mode="subscribe", verify_token=app.verify_token, challenge="<123>")

    assert (answer.status_code, answer.content) == (200, b"<123>")
    assert answer.headers["Content-Type"] == "text/plain"


@pytest.mark.parametrize("query", [{"mode": "subscribe", "verify_token": "x"}, {"mode": "unsubscribe"}, {}])
def test_refuses_another_verify_token(query: dict[str, str]) -> None:
    assert greet(make_app(), challenge="1", **query).status_code == 403


def test_knows_the_published_vector_of_the_signature() -> None:
    digest = "0329a06b62cd16b33eb6792be8c60b158d89a2ee3a876fce9a881ebb488c0914"

    assert meta.is_signed(b"test", f"sha256={digest}", secret="secret")
    assert not meta.is_signed(b"test ", f"sha256={digest}", secret="secret")
    assert not meta.is_signed(b"test", digest, secret="secret")
    assert not meta.is_signed(b"test", f"sha256={digest}", secret="")


@pytest.mark.parametrize(
    ("signature", "status"), [("", 401), ("sha256=", 403), ("sha1=aa", 403), ("sha256=" + "0" * 64, 403)]
)
def test_takes_nothing_that_the_app_did_not_sign(signature: str, status: int) -> None:
    app = make_app()

    assert post(app, {"object": "x"}, signature=signature).status_code == status
    assert post(app, {"object": "x"}, secret="another").status_code == 403
    assert not InboundCall.objects.exists()


def test_stores_the_very_bytes_that_were_signed() -> None:
    app, body = make_app(), b'{"object":"whatsapp_business_account","x":"\\u00e9 \\/ @"}'

    assert post(app, body).status_code == 200

    call = InboundCall.objects.get()
    assert (bytes(call.body), call.event, call.app, call.instance) == (
        body,
        "whatsapp_business_account",
        app,
        None,
    )


@pytest.mark.parametrize("body", [b"garbage", b"[]", b'{"object": 5}', b""])
def test_takes_whatever_is_signed(body: bytes, now: datetime) -> None:
    take(make_app(), body, now)

    assert InboundCall.objects.get().applied_at == now


def test_does_not_know_a_strange_address(db: None) -> None:
    assert Client().post("/hooks/meta/none", b"{}", content_type="application/json").status_code == 404
    assert Client().get("/hooks/meta/none").status_code == 404


# --- statuses ---------------------------------------------------------------------------------------------


def test_moves_a_message_along_and_keeps_prices(now: datetime) -> None:
    instance = make_meta_instance()
    message = make_message(instance=instance, status="submitted", provider_message_id="wamid.X")
    pricing = {"billable": True, "category": "utility"}

    for word in ("sent", "delivered", "read"):
        take(instance.app, delivery((instance, of_status("wamid.X", word, pricing=pricing))), now)

    message.refresh_from_db()
    assert message.status == "read"
    events = MessageEvent.objects.filter(message=message).order_by("id")
    assert [(event.kind, event.detail) for event in events] == [
        (word, {"pricing": pricing}) for word in ("sent", "delivered", "read")
    ]


def test_finds_a_message_by_our_own_id_when_its_answer_was_lost(now: datetime) -> None:
    instance = make_meta_instance()
    message = make_message(instance=instance, status="unconfirmed", attempts=1, attempted_at=now)
    status = of_status("wamid.LOST", "sent", biz_opaque_callback_data=message.pk)

    take(instance.app, delivery((instance, status)), now)

    message.refresh_from_db()
    assert (message.status, message.provider_message_id) == ("sent", "wamid.LOST")
    assert not ParkedReceipt.objects.exists()


def test_does_not_take_our_own_id_from_another_instance(now: datetime) -> None:
    instance, other = make_meta_instance(), make_meta_instance()
    message = make_message(instance=other, status="unconfirmed")
    status = of_status("wamid.X", "read", biz_opaque_callback_data=message.pk)

    take(instance.app, delivery((instance, status)), now)

    message.refresh_from_db()
    assert message.status == "unconfirmed"


def test_parks_a_status_of_a_message_that_is_not_known_yet(now: datetime) -> None:
    instance = make_meta_instance()

    take(instance.app, delivery((instance, of_status("wamid.LATER", "delivered"))), now)

    assert ParkedReceipt.objects.get().provider_message_id == "wamid.LATER"


def test_applies_a_batch_over_several_numbers_once_each(now: datetime) -> None:
    first = make_meta_instance()
    second = make_meta_instance(first.tenant, first.app)
    messages = [
        make_message(instance=instance, status="submitted", provider_message_id="wamid.S")
        for instance in (first, second)
    ]
    values = [(instance, of_status("wamid.S", "delivered")) for instance in (first, second)] * 2

    take(first.app, delivery(*values), now)

    for message in messages:
        message.refresh_from_db()
        assert message.status == "delivered"
        assert MessageEvent.objects.filter(message=message).count() == 1


def test_never_lets_an_app_speak_for_the_number_of_another(now: datetime) -> None:
    """Whoever has an app of their own can sign anything with its secret."""
    victim = make_meta_instance()
    message = make_message(instance=victim, status="submitted", provider_message_id="wamid.X")
    stranger = make_app(secret="of the stranger")

    answer = post(stranger, delivery((victim, of_status("wamid.X", "failed"))), secret="of the stranger")
    assert answer.status_code == 200
    apply(now)

    message.refresh_from_db()
    assert message.status == "submitted"
    assert not ReceivedMessage.objects.exists()


def test_asks_for_the_instances_of_an_app_once_for_a_batch(
    now: datetime,
) -> None:
    instance = make_meta_instance()
    for n in range(5):
        post(instance.app, delivery((instance, of_status(f"wamid.{n}", "read"))))
    with CaptureQueriesContext(connection) as five:
        apply_pending(now=now)
    for n in range(10):
        post(instance.app, delivery((instance, of_status(f"wamid.{n}", "read"))))
    with CaptureQueriesContext(connection) as ten:
        apply_pending(now=now)

    assert len(ten) == len(five)


def failed(code: int, id: str = "wamid.X") -> dict[str, Any]:
    return of_status(id, "failed", errors=[{"code": code, "title": "T"}])


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (131047, "window_closed"),
        (131026, "undeliverable"),
        (131049, "held_back"),
        (132000, "template_rejected"),
    ],
)
def test_says_why_a_message_failed_after_it_was_accepted(code: int, failure: str, now: datetime) -> None:
    instance = make_meta_instance()
    message = make_message(instance=instance, status="submitted", provider_message_id="wamid.X")

    take(instance.app, delivery((instance, failed(code))), now)

    message.refresh_from_db()
    assert (message.status, message.failure_code, message.failure_detail) == ("failed", failure, f"{code}: T")
    assert MessageEvent.objects.get(message=message).detail["errors"] == [{"code": code, "title": "T"}]


def test_believes_meta_that_a_window_is_closed_and_keeps_the_true_reason(now: datetime) -> None:
    instance = make_meta_instance()
    for key, code in (("wamid.A", 131047), ("wamid.B", 131026)):
        make_message(
            instance=instance, status="sent", provider_message_id=key, to=f"+551199999000{code % 10}"
        )
        take(instance.app, delivery((instance, failed(code, id=key))), now)

    windows = {window.refused_by: window for window in Window.objects.filter(instance=instance)}
    assert windows.keys() == {"window_closed", "undeliverable"}
    assert windows["window_closed"].closed_at is not None
    assert windows["undeliverable"].closed_at is None


def test_fetches_templates_again_when_one_was_refused(now: datetime) -> None:
    instance = make_meta_instance(templates_fetched_at=now)
    make_message(instance=instance, status="sent", provider_message_id="wamid.X")

    take(instance.app, delivery((instance, failed(132000))), now)

    instance.refresh_from_db()
    assert instance.templates_fetched_at is None


def test_takes_131050_for_an_opt_out(now: datetime) -> None:
    instance = make_meta_instance()
    make_message(instance=instance, status="sent", provider_message_id="wamid.X")

    take(instance.app, delivery((instance, failed(131050))), now)

    assert OptIn.objects.get(tenant=instance.tenant, number="+5511999990000").revoked_at is not None


def test_upgrades_a_failed_message_that_was_delivered_all_the_same(now: datetime) -> None:
    instance = make_meta_instance()
    message = make_message(instance=instance, status="sent", provider_message_id="wamid.X")

    take(instance.app, delivery((instance, failed(131026))), now)
    take(instance.app, delivery((instance, of_status("wamid.X", "delivered"))), now)

    message.refresh_from_db()
    assert message.status == "delivered"
    assert {event.kind for event in MessageEvent.objects.filter(message=message)} == {"failed", "delivered"}


# --- what people write ------------------------------------------------------------------------------------


def test_keeps_a_message_once_and_knows_its_writer(now: datetime) -> None:
    instance = make_meta_instance()
    payload = delivery(
        (instance, of_message(from_user_id="BR.1")), (instance, of_message(from_user_id="BR.1"))
    )

    take(instance.app, payload, now)
    take(instance.app, payload, now)

    received = ReceivedMessage.objects.get()
    assert (received.text, received.sender_number, received.user_id) == ("oi", "+5511999990000", "BR.1")
    contact = Contact.objects.get(tenant=instance.tenant)
    assert (contact.name, contact.user_id) == ("Ana", "BR.1")


def test_opens_the_window_by_the_time_of_the_message(now: datetime) -> None:
    instance = make_meta_instance()
    older, newer = int(now.timestamp()) - 7200, int(now.timestamp()) - 3600

    for key, at in (("wamid.2", newer), ("wamid.1", older)):
        message = of_message(key, timestamp=str(at), from_user_id="BR.1")
        take(instance.app, delivery((instance, message)), now)

    windows = {window.address: window for window in Window.objects.filter(instance=instance)}
    assert windows.keys() == {"+551199990000", "BR.1"}
    assert {window.received_at for window in windows.values()} == {now - timedelta(hours=1)}
    assert {window.received_id for window in windows.values()} == {"wamid.2"}


def test_does_not_believe_a_message_from_the_future(now: datetime) -> None:
    instance = make_meta_instance()

    take(instance.app, delivery((instance, of_message(timestamp=str(2**32 - 1)))), now)

    call = InboundCall.objects.get()
    assert Window.objects.get(instance=instance).received_at == call.received_at


def test_keeps_a_person_without_a_number(now: datetime) -> None:
    instance = make_meta_instance()
    value = {"messages": [{"from_user_id": "BR.1", "id": "wamid.I", "type": "text", "timestamp": "1"}]}

    take(instance.app, delivery((instance, value)), now)

    assert ReceivedMessage.objects.get().sender_id == "BR.1"
    assert not Contact.objects.exists()


# --- news of the account ----------------------------------------------------------------------------------


def test_follows_a_template_that_is_paused(now: datetime) -> None:
    instance = make_meta_instance(templates_fetched_at=now)
    MetaTemplate.objects.create(
        instance=instance, name="pedido", language="pt_BR", status="APPROVED", synced_at=now
    )
    news = {"event": "PAUSED", "message_template_name": "pedido", "message_template_language": "pt_BR"}
    payload = delivery((instance, news), field="message_template_status_update")

    take(instance.app, payload, now)

    assert MetaTemplate.objects.get().status == "PAUSED"
    instance.refresh_from_db()
    assert instance.templates_fetched_at is None
    assert InstanceEvent.objects.get(instance=instance).kind == "template_status"


def test_tells_in_the_history_that_the_quality_of_a_number_fell(now: datetime) -> None:
    instance = make_meta_instance()
    news = {"event": "FLAGGED", "current_limit": "TIER_1K", "odd": [1]}

    take(instance.app, delivery((instance, news), field="phone_number_quality_update"), now)

    event = InstanceEvent.objects.get(instance=instance)
    assert (event.kind, event.detail["event"], event.detail["current_limit"]) == (
        "number_quality",
        "FLAGGED",
        "TIER_1K",
    )


def test_says_what_of_a_call_could_not_be_kept(now: datetime) -> None:
    instance = make_meta_instance()

    take(instance.app, delivery((instance, of_status("w" * 300, "read")), (instance, of_message())), now)

    assert "no id" in InboundCall.objects.get().error
    assert ReceivedMessage.objects.count() == 1


def test_reads_an_escaped_body(now: datetime) -> None:
    instance = make_meta_instance()
    body = json.dumps(delivery((instance, of_message(text={"body": "ção @ /"})))).replace("/", "\\/").encode()

    take(instance.app, body, now)

    assert ReceivedMessage.objects.get().text == "ção @ /"
