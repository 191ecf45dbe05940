"""The door that providers call: what it answers, and what it keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from instances.models import Instance, InstanceEvent, Outage
from pilot.models import Alert
from tests.factories import make_instance
from webhooks import applying, inbound
from webhooks.models import CONNECTION_EVENTS, InboundCall

pytestmark = pytest.mark.django_db


def post(instance: Instance, body: Any, *, client: Client | None = None) -> HttpResponse:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    path = f"/hooks/evolution/{instance.hook_token}"
    return (client or Client()).post(path, raw, content_type="application/json")  # type: ignore[return-value]


def page(response: Any) -> str:
    """The answer without what differs from request to request: the path and the CSRF token."""
    return re.sub(r'value="[^"]*"', "", response.content.decode())


def connection_update(state: str, *, second: int = 0) -> dict[str, Any]:
    return {
        "event": "connection.update",
        "instance": "a1",
        "data": {"instance": "a1", "state": state, "statusReason": 200},
        "date_time": f"2026-11-29T15:26:{second:02}.300Z",
    }


def test_keeps_a_call_as_it_came() -> None:
    instance = make_instance()
    raw = b'{"event": "messages.update",  "data": {"keyId": "3EB0"}}'

    response = post(instance, raw)

    assert (response.status_code, json.loads(response.content)) == (200, {"ok": True})
    call = InboundCall.objects.get()
    assert (call.instance, call.event, bytes(call.body)) == (instance, "messages.update", raw)
    assert (call.applied_at, call.error) == (None, "")


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (b'{"apikey":"s3cret","event":"x"}', b'{"apikey":"redacted","event":"x"}'),
        (b'{"data":{"apikey" : "s3\\"cret"}}', b'{"data":{"apikey" : "redacted"}}'),
        (b'{"apikey":null}', b'{"apikey":null}'),
        (b'{"text":"\\"apikey\\":\\"mine\\""}', b'{"text":"\\"apikey\\":\\"mine\\""}'),
        (b'"apikey": "cut', b'"apikey": "cut'),
    ],
)
def test_never_stores_the_instance_key(sent: bytes, kept: bytes) -> None:
    post(make_instance(), sent)

    assert bytes(InboundCall.objects.get().body) == kept


@pytest.mark.parametrize(
    "suffix", ["", "/", "/messages-update", "/messages-update/", "/group-participants-update"]
)
def test_is_found_with_and_without_slash_and_event(suffix: str) -> None:
    instance = make_instance()
    path = f"/hooks/evolution/{instance.hook_token}{suffix}"

    response = Client().post(path, b"{}", content_type="application/json")

    assert response.status_code == 200
    assert InboundCall.objects.count() == 1


def test_needs_no_csrf_token() -> None:
    client = Client(enforce_csrf_checks=True)

    assert post(make_instance(), b"{}", client=client).status_code == 200


@pytest.mark.parametrize("secret", ["wrong", "hook-", "%00", "é" * 50, "a" * 2000])
def test_answers_a_wrong_secret_like_any_unknown_path(secret: str) -> None:
    make_instance()

    refused = Client().post(f"/hooks/evolution/{secret}", b"{}", content_type="application/json")
    unknown = Client().post("/nowhere/at-all", b"{}", content_type="application/json")

    assert (refused.status_code, unknown.status_code) == (404, 404)
    assert page(refused) == page(unknown)
    assert set(refused.headers) == set(unknown.headers)
    assert not InboundCall.objects.exists()


def test_refuses_a_secret_as_soon_as_it_is_replaced() -> None:
    instance = make_instance()
    assert post(instance, b"{}").status_code == 200

    Instance.objects.filter(pk=instance.pk).update(hook_digest="0" * 64)

    assert post(instance, b"{}").status_code == 404


def test_refuses_a_removed_instance() -> None:
    assert post(make_instance(status="removed"), b"{}").status_code == 404


@pytest.mark.parametrize("method", ["get", "head", "put", "delete"])
def test_takes_only_post(method: str) -> None:
    instance = make_instance()

    assert getattr(Client(), method)(f"/hooks/evolution/{instance.hook_token}").status_code == 405


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"not json",
        b"[]",
        b'"text"',
        b'{"event": 7}',
        b'{"event": "\\u0000"}',
        b"\xff\xfe",
        b"[" * 20_000,
    ],
)
def test_keeps_even_what_it_does_not_understand(raw: bytes) -> None:
    response = post(make_instance(), raw)

    assert response.status_code == 200
    call = InboundCall.objects.get()
    assert (bytes(call.body), call.event) == (raw, "")


def test_takes_a_body_up_to_the_limit_and_no_more() -> None:
    instance, limit = make_instance(), settings.DATA_UPLOAD_MAX_MEMORY_SIZE

    assert post(instance, b" " * limit).status_code == 200
    # Not 400, on which Evolution would drop the call for ever; it tries a 413 again.
    assert post(instance, b" " * (limit + 1)).status_code == 413
    assert InboundCall.objects.count() == 1


def test_costs_two_statements(django_assert_num_queries: Any) -> None:
    instance = make_instance()

    with django_assert_num_queries(2):
        post(instance, {"event": "messages.update", "data": {}})


# --- storms of connection.update --------------------------------------------------------------------------


def test_keeps_one_of_a_storm_of_equal_connection_updates() -> None:
    instance = make_instance()

    answers = {post(instance, connection_update("connecting", second=n)).status_code for n in range(20)}

    assert answers == {200}
    assert InboundCall.objects.count() == 1


def test_keeps_a_connection_update_that_says_something_else() -> None:
    instance = make_instance()

    for state in ("connecting", "open", "connecting", "connecting", "open"):
        post(instance, connection_update(state))

    states = [json.loads(bytes(call.body))["data"]["state"] for call in InboundCall.objects.order_by("id")]
    assert states == ["connecting", "open", "connecting", "open"]


def test_keeps_a_connection_update_after_any_other_call() -> None:
    instance = make_instance()
    update = connection_update("connecting")

    for body in (update, update | {"event": "status.instance"}, update):
        post(instance, body)

    assert InboundCall.objects.count() == 3


def test_keeps_an_equal_connection_update_after_a_while() -> None:
    instance = make_instance()
    post(instance, connection_update("connecting"))
    InboundCall.objects.update(received_at=timezone.now() - timedelta(seconds=11))

    post(instance, connection_update("connecting"))

    assert InboundCall.objects.count() == 2


def test_a_storm_of_changing_states_costs_few_rows_and_ends_in_a_question() -> None:
    instance = make_instance()

    answers = [
        post(instance, connection_update(("connecting", "close", "open")[number % 3])).status_code
        for number in range(160)
    ]
    applying.apply_pending(now=timezone.now())

    assert set(answers) == {200}
    assert InboundCall.objects.count() == inbound.STORM
    assert InstanceEvent.objects.count() <= inbound.STORM
    outage = Outage.objects.get()
    assert outage.recheck_at is not None
    assert not Alert.objects.exists()


def test_a_storm_while_an_instance_is_paired_is_no_outage() -> None:
    instance = make_instance(status="created")

    for number in range(30):
        post(instance, connection_update(("connecting", "close")[number % 2]))

    assert (InboundCall.objects.count(), Outage.objects.count()) == (inbound.STORM, 0)


def test_a_storm_between_receipts_is_one_too() -> None:
    instance = make_instance()

    for number in range(20):
        post(instance, connection_update("connecting"))
        post(instance, {"event": "messages.update", "data": {"keyId": f"3EB{number}", "status": "READ"}})

    assert InboundCall.objects.filter(event="connection.update").count() == 1
    assert InboundCall.objects.count() == 21


def test_hears_an_instance_again_when_its_storm_is_over() -> None:
    instance = make_instance()
    for number in range(30):
        post(instance, connection_update(("connecting", "open")[number % 2]))
    InboundCall.objects.update(received_at=timezone.now() - timedelta(seconds=61))

    post(instance, connection_update("close"))

    assert InboundCall.objects.count() == inbound.STORM + 1


def test_a_terminal_close_is_kept_in_any_storm() -> None:
    instance = make_instance()
    for number in range(30):
        post(instance, connection_update(("connecting", "open")[number % 2]))

    post(instance, {"event": "logout.instance", "data": None})

    assert InboundCall.objects.latest("id").event == "logout.instance"


def test_looks_for_the_newest_news_of_a_connection_by_its_index() -> None:
    instance = make_instance()
    newest = InboundCall.objects.filter(instance=instance, event__in=CONNECTION_EVENTS).order_by("-id")[:6]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")

    assert "inbound_call_connection" in newest.explain()


def test_keeps_equal_connection_updates_of_different_instances() -> None:
    for _ in range(2):
        post(make_instance(), connection_update("connecting"))

    assert InboundCall.objects.count() == 2


def test_keeps_equal_receipts() -> None:
    instance = make_instance()

    for _ in range(2):
        post(instance, {"event": "messages.update", "data": {"keyId": "3EB0", "status": "READ"}})

    assert InboundCall.objects.count() == 2


# --- when the database fails ------------------------------------------------------------------------------


@contextmanager
def failing_inserts(statement: str) -> Iterator[None]:
    """Makes PostgreSQL itself run `statement` at each insert of a call."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE FUNCTION break_insert() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {statement}; END$$;"
            "CREATE TRIGGER broken BEFORE INSERT ON webhooks_inboundcall"
            " FOR EACH ROW EXECUTE FUNCTION break_insert()"
        )
    try:
        yield
    finally:
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION break_insert CASCADE")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "statement", ["RAISE EXCEPTION 'disk full'", "PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW"]
)
def test_asks_to_try_again_when_it_cannot_store(statement: str) -> None:
    instance = make_instance()

    with failing_inserts(statement):
        response = post(instance, b"{}")

    assert response.status_code == 503
    assert response["Retry-After"] == "5"
    assert not InboundCall.objects.exists()
    assert post(instance, b"{}").status_code == 200
