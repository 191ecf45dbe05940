"""Deliveries over real HTTP: each way in which a receiver may behave, and nobody in anybody's way."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from standardwebhooks import Webhook

from tests.factories import make_project, make_tenant
from tests.providers import peer
from tests.providers.peer import Behaviour, Peer
from tests.webhooks.receiver import Receiver, Reply, eventually
from tests.webhooks.tellings import fan_out, happen, make_endpoint, message_of, tell
from webhooks import signing
from webhooks.models import WebhookDelivery, WebhookEndpoint
from webhooks.sending import Sender

pytestmark = pytest.mark.usefixtures("sender")


def only(endpoint: WebhookEndpoint) -> WebhookDelivery:
    return endpoint.deliveries.select_related("event").get()


def reaches(endpoint: WebhookEndpoint, status: str, within: float = 15) -> WebhookDelivery:
    """Waits until the endpoint's only delivery has come to this."""
    eventually(lambda: only(endpoint).status == status, within=within)
    return only(endpoint)


def statuses(delivery: WebhookDelivery) -> list[Any]:
    return [entry["status"] or entry["error"] for entry in delivery.log]


def test_delivers_what_the_library_of_the_standard_verifies(receiver: Receiver) -> None:
    endpoint = make_endpoint(url=receiver.url(), headers={"Authorization": "Bearer sekret"})
    happen(
        message_of(endpoint, make_project(endpoint.tenant, slug="crm"), metadata={"order": "Nº 7"}), "read"
    )
    fan_out()

    delivery = reaches(endpoint, "delivered")

    (call,) = receiver.calls
    told = Webhook(endpoint.secrets[0]["secret"]).verify(call.body, call.headers)
    assert told["type"] == "message.read"
    assert told["data"]["metadata"] == {"order": "Nº 7"}
    assert call.headers["content-type"] == "application/json"
    assert call.headers["authorization"] == "Bearer sekret"
    assert call.id == told["id"] == delivery.event.name
    assert statuses(delivery) == [200]


def test_both_secrets_verify_while_one_replaces_the_other(receiver: Receiver) -> None:
    endpoint = make_endpoint(url=receiver.url())
    old, new = endpoint.secrets[0]["secret"], signing.new_secret()
    ends_at = (endpoint.created_at + timedelta(days=999)).isoformat()
    WebhookEndpoint.objects.filter(pk=endpoint.pk).update(
        secrets=[{"secret": new, "ends_at": None}, {"secret": old, "ends_at": ends_at}]
    )
    tell(endpoint)
    reaches(endpoint, "delivered")

    (call,) = receiver.calls
    for secret in (old, new):
        assert Webhook(secret).verify(call.body, call.headers)


def test_a_receiver_that_fails_is_tried_again_with_the_same_id_and_body(receiver: Receiver) -> None:
    receiver.reply("/hook", Reply(500, body="later"), Reply(503), Reply(200))
    endpoint = make_endpoint(url=receiver.url())
    tell(endpoint)

    delivery = reaches(endpoint, "delivered")

    assert statuses(delivery) == [500, 503, 200]
    assert delivery.log[0]["response_body"] == "later"
    assert len({call.id for call in receiver.calls}) == 1
    assert len({call.body for call in receiver.calls}) == 1
    for call in receiver.calls:
        assert Webhook(endpoint.secrets[0]["secret"]).verify(call.body, call.headers)


def test_fails_once_on_purpose_for_the_magic_number_of_a_test_key(receiver: Receiver) -> None:
    endpoints = {
        side: make_endpoint(url=receiver.url(f"/{side}"), environment=side) for side in ("test", "live")
    }
    for side, endpoint in endpoints.items():
        happen(message_of(endpoint, environment=side, to="+12015550110"), "read")
    fan_out()

    told = {side: statuses(reaches(endpoint, "delivered")) for side, endpoint in endpoints.items()}

    assert told == {"test": [500, 200], "live": [200]}
    assert len(receiver.calls) == 2


def test_a_receiver_that_always_fails_is_given_up_after_the_schedule(receiver: Receiver) -> None:
    receiver.reply("/hook", Reply(500))
    endpoint = make_endpoint(url=receiver.url())
    tell(endpoint)

    delivery = reaches(endpoint, "failed")

    assert statuses(delivery) == [500] * 5
    gaps = [b.at - a.at for a, b in zip(receiver.calls, receiver.calls[1:], strict=False)]
    assert all(gap >= wait for gap, wait in zip(gaps, (0.05, 0.1, 0.2, 0.3), strict=True))


def test_a_redirect_is_a_failure_and_is_not_followed(receiver: Receiver) -> None:
    receiver.reply("/hook", Reply(302, {"Location": receiver.url("/elsewhere")}), Reply(200))
    endpoint = make_endpoint(url=receiver.url())
    tell(endpoint)

    assert statuses(reaches(endpoint, "delivered")) == [302, 200]
    assert receiver.at("/elsewhere") == []


def test_410_switches_the_endpoint_off_at_once(receiver: Receiver) -> None:
    receiver.reply("/hook", Reply(410))
    endpoint = make_endpoint(url=receiver.url())
    tell(endpoint)

    assert statuses(reaches(endpoint, "failed")) == [410]
    eventually(lambda: WebhookEndpoint.objects.get().disabled_by == "gone")


def test_retry_after_is_respected(receiver: Receiver) -> None:
    tenant = make_tenant()
    asking = {status: make_endpoint(tenant, url=receiver.url(f"/{status}")) for status in (429, 503)}
    for status in asking:
        receiver.reply(f"/{status}", Reply(status, {"Retry-After": "1"}), Reply(200))
    tell(asking[429])

    for status, endpoint in asking.items():
        assert statuses(reaches(endpoint, "delivered")) == [status, 200]
        first, second = receiver.at(f"/{status}")
        assert second.at - first.at >= 1


def test_a_receiver_that_answers_too_slowly_has_not_answered(receiver: Receiver) -> None:
    receiver.reply("/hook", Reply(200, after=0.9), Reply(200))
    endpoint = make_endpoint(url=receiver.url())
    tell(endpoint)

    assert statuses(reaches(endpoint, "delivered")) == ["timeout", 200]


def test_a_receiver_may_take_its_time_within_the_limit(receiver: Receiver) -> None:
    receiver.reply("/hook", Reply(200, after=0.2))
    endpoint = make_endpoint(url=receiver.url())
    tell(endpoint)

    assert statuses(reaches(endpoint, "delivered")) == [200]


@pytest.fixture
def rude() -> Iterator[list[Peer]]:
    made: list[Peer] = []
    yield made
    for one in made:
        one.close()


RUDE: Mapping[str, tuple[Behaviour, str]] = {
    "resets": (peer.reset, "cut"),
    "hangs up": (peer.hang_up, "cut"),
    "babbles": (peer.babble, "cut"),
    "says nothing": (peer.hang, "timeout"),
    "sends headers for ever": (peer.trickle_headers, "timeout"),
    "sends a body for ever": (peer.trickle_body, "timeout"),
}


def test_receivers_that_misbehave_are_tried_again(rude: list[Peer]) -> None:
    tenant = make_tenant()
    for name, (behaviour, _error) in RUDE.items():
        rude.append(Peer(behaviour))
        make_endpoint(tenant, url=rude[-1].url, description=name)
    endpoints = {each.description: each for each in WebhookEndpoint.objects.all()}
    tell(endpoints["resets"])

    for name, (_behaviour, error) in RUDE.items():
        eventually(lambda endpoint=endpoints[name]: len(only(endpoint).log) >= 2)
        assert set(statuses(only(endpoints[name]))) == {error}, name


def test_a_receiver_that_is_not_there_is_tried_again() -> None:
    endpoint = make_endpoint(url="http://127.0.0.1:9/")
    tell(endpoint)

    assert statuses(reaches(endpoint, "failed")) == ["unreachable"] * 5


def test_an_address_that_may_not_be_called_is_not_called(receiver: Receiver) -> None:
    endpoint = make_endpoint(url=f"http://[::ffff:127.0.0.1]:{receiver.port}/hook")
    tell(endpoint)

    assert statuses(reaches(endpoint, "failed")) == ["refused"] * 5
    assert receiver.calls == []


def test_a_time_of_failures_switches_the_endpoint_off(receiver: Receiver) -> None:
    receiver.reply("/hook", Reply(500))
    endpoint = make_endpoint(url=receiver.url())

    def is_off() -> bool:
        tell(endpoint)
        return WebhookEndpoint.objects.filter(pk=endpoint.pk, disabled_by="failing").exists()

    eventually(is_off, within=20)


def test_the_log_keeps_no_secret_and_no_long_answer(receiver: Receiver) -> None:
    endpoint = make_endpoint(url=receiver.url(), headers={"X-Api-Key": "tenant-sekret"})
    secret = endpoint.secrets[0]["secret"]
    echo = f"tenant-sekret {secret} {secret.removeprefix('whsec_')} \0 " + "x" * 10_000
    receiver.reply(
        "/hook", Reply(200, {"Set-Cookie": "session=abc", "X-Token": "abc", "X-Id": "7"}, body=echo)
    )
    tell(endpoint)

    delivery = reaches(endpoint, "delivered")

    kept = json.dumps(delivery.log)
    for hidden in ("tenant-sekret", secret.removeprefix("whsec_"), "session=abc", '"abc"'):
        assert hidden not in kept
    (entry,) = delivery.log
    assert entry["request_headers"]["X-Api-Key"] == "***"
    assert entry["request_headers"]["webhook-id"] == delivery.event.name
    assert entry["response_headers"]["x-id"] == "7"
    assert entry["response_body"].startswith("*** *** *** \N{REPLACEMENT CHARACTER} xxx")
    assert len(entry["response_body"]) <= 4096


def test_an_endpoint_whose_secrets_no_key_decrypts_harms_nobody(receiver: Receiver) -> None:
    healthy = make_endpoint(url=receiver.url("/healthy"))
    broken = make_endpoint(healthy.tenant, url=receiver.url("/broken"))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE webhooks_webhookendpoint SET secrets = 'junk' WHERE id = %s", [broken.pk])
    tell(healthy)

    reaches(healthy, "delivered")

    rows = WebhookDelivery.objects.filter(endpoint=broken.pk)
    eventually(lambda: rows.filter(status="failed").exists())
    assert {entry["error"] for entry in rows.get().log} == {"internal"}
    assert receiver.at("/broken") == [], "nothing is sent unsigned"


def test_events_of_one_message_arrive_in_their_order(receiver: Receiver) -> None:
    """Even though the endpoint takes many at once."""
    receiver.reply("/hook", *(Reply(after=0.03 * (number % 3)) for number in range(60)))
    endpoint = make_endpoint(url=receiver.url())
    kinds = ["queued", "submitted", "sent", "delivered", "read"]
    messages = [message_of(endpoint) for _number in range(6)]
    for kind in kinds:
        for message in messages:
            happen(message, kind)
    fan_out()

    eventually(lambda: not endpoint.deliveries.exclude(status="delivered").exists())

    told = [json.loads(call.body) for call in receiver.calls]
    for message in messages:
        mine = [one["data"]["status"] for one in told if one["data"]["message_id"] == message.pk]
        assert mine == kinds
    assert receiver.most_in_flight["/hook"] > 1


def test_a_dead_endpoint_is_soon_left_alone_and_delays_nobody(receiver: Receiver, rude: list[Peer]) -> None:
    rude.append(Peer(peer.hang))
    dead, healthy = make_endpoint(url=rude[0].url), make_endpoint(url=receiver.url())
    tell(dead, 100)
    started = time.monotonic()
    tell(healthy, 100)

    eventually(lambda: healthy.deliveries.filter(status="delivered").count() == 100)

    assert time.monotonic() - started < 4
    eventually(lambda: WebhookEndpoint.objects.get(pk=dead.pk).open_until is not None)
    assert len(rude[0].requests) < 60


def test_what_happens_now_does_not_wait_for_what_is_tried_again(receiver: Receiver) -> None:
    receiver.reply("/hook", Reply(500))
    endpoint = make_endpoint(url=receiver.url())
    tell(endpoint, 40)
    eventually(lambda: endpoint.deliveries.filter(untried=True).count() == 0)
    receiver.reply("/hook", Reply(200, after=0.3))
    newest = tell(endpoint)[-1]

    eventually(lambda: newest.event.name in receiver.ids("/hook"), within=1)


def test_the_sender_goes_on_when_the_database_was_away(
    sender: Sender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.db import OperationalError

    from webhooks import claiming, settling

    real_claim, real_settle = claiming.claim, settling.settle
    failures = iter([True, True])

    def failing(real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if next(failures, False):
                raise OperationalError("away")
            return real(*args, **kwargs)

        return call

    monkeypatch.setattr("webhooks.sending.RECONNECT_SECONDS", 0.05)
    monkeypatch.setattr(settling, "settle", failing(real_settle))
    monkeypatch.setattr(claiming, "claim", failing(real_claim))
    endpoint = make_endpoint(url=receiver.url())
    tell(endpoint)

    reaches(endpoint, "delivered")


def test_says_for_how_long_it_has_been_stuck(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose sender does not move sends no heartbeat."""
    eventually(lambda: sender.stuck_for() < 0.1)

    monkeypatch.setattr("webhooks.claiming.claim", lambda **_options: time.sleep(1) or [])

    eventually(lambda: sender.stuck_for() > 0.5)
