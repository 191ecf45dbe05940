"""Endpoints: what may be said of one, and its secrets."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections

from pilot import alerts
from pilot.models import Alert
from tests.factories import NOW, make_project, make_tenant
from tests.webhooks.tellings import make_endpoint, tell
from webhooks import endpoints, signing
from webhooks.claiming import claim
from webhooks.models import WebhookEndpoint

pytestmark = pytest.mark.django_db

URL = "https://example.com/hook"


def create(**fields: Any) -> tuple[WebhookEndpoint, str]:
    values = {"tenant": make_tenant(), "environment": "live", "url": URL, "now": NOW}
    return endpoints.create(**values | fields)


def test_gives_the_secret_that_signs() -> None:
    endpoint, secret = create()

    assert signing.working(WebhookEndpoint.objects.get(pk=endpoint.pk).secrets, now=NOW) == [secret]


def test_keeps_secret_and_headers_encrypted() -> None:
    _endpoint, secret = create(headers={"Authorization": "Bearer sekret"})

    with connection.cursor() as cursor:
        cursor.execute("SELECT secrets, headers FROM webhooks_webhookendpoint")
        (row,) = cursor.fetchall()
    assert secret not in row[0]
    assert "sekret" not in row[1]


WRONG = {
    "an inner address": {"url": "http://127.0.0.1/"},
    "no URL": {"url": "example"},
    "another port": {"url": "https://example.com:22/"},
    "an event that is none": {"types": ["message.read", "message.lost"]},
    "no such version": {"version": "0"},
    "a header of ours": {"headers": {"Webhook-Id": "1"}},
    "a header that frames": {"headers": {"content-LENGTH": "1"}},
    "a header that is none": {"headers": {"a b": "1"}},
    "an injection": {"headers": {"X-A": "1\r\nX-B: 2"}},
    "an empty header": {"headers": {"X-A": ""}},
    "too many headers": {"headers": {f"X-{number}": "1" for number in range(21)}},
}


@pytest.mark.parametrize("fields", WRONG.values(), ids=WRONG)
def test_refuses_what_is_wrong_and_names_the_field(fields: dict[str, Any]) -> None:
    with pytest.raises(endpoints.InvalidEndpoint) as refused:
        create(**fields)
    assert list(refused.value.fields) == list(fields)

    endpoint = make_endpoint(url=URL)
    with pytest.raises(endpoints.InvalidEndpoint):
        endpoints.change(endpoint, **fields)
    endpoint.refresh_from_db()
    assert endpoint.url == URL


def test_a_tenant_has_only_so_many(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "MOST_ENDPOINTS", 2)
    tenant = make_tenant()
    refused: list[endpoints.TooManyEndpoints] = []

    def make() -> None:
        try:
            create(tenant=tenant)
        except endpoints.TooManyEndpoints as error:
            refused.append(error)
        finally:
            connections.close_all()

    makers = [threading.Thread(target=make) for _ in range(5)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()

    assert (WebhookEndpoint.objects.count(), len(refused)) == (2, 3)
    create(tenant=tenant, environment="test")
    create()


def test_rotates_with_an_overlap() -> None:
    endpoint, old = create()

    new = endpoints.rotate(endpoint, overlap=timedelta(hours=1), now=NOW)

    kept = WebhookEndpoint.objects.get(pk=endpoint.pk).secrets
    assert signing.working(kept, now=NOW) == [new, old]
    assert signing.working(kept, now=NOW + timedelta(hours=1)) == [new]


def test_refuses_more_than_two_old_secrets_unless_they_end_now() -> None:
    endpoint, _secret = create()
    for _time in range(2):
        endpoints.rotate(endpoint, overlap=timedelta(hours=1), now=NOW)

    with pytest.raises(endpoints.TooManySecrets):
        endpoints.rotate(endpoint, overlap=timedelta(hours=1), now=NOW)

    newest = endpoints.rotate(endpoint, overlap=timedelta(), now=NOW)
    assert signing.working(WebhookEndpoint.objects.get(pk=endpoint.pk).secrets, now=NOW) == [newest]


def test_a_changed_url_takes_what_waits_with_it() -> None:
    endpoint = make_endpoint()
    tell(endpoint)

    endpoints.change(endpoint, url=URL, types=["message.read"])

    assert endpoint.deliveries.get().endpoint.url == URL


def test_switching_on_again_ends_the_alert() -> None:
    endpoint = make_endpoint(disabled_at=NOW, disabled_by="gone")
    alerts.raise_alert(
        "webhook_endpoint_disabled", str(endpoint.pk), tenant_id=endpoint.tenant_id, detail={}, now=NOW
    )

    endpoints.enable(endpoint, now=NOW)

    assert Alert.objects.get().recovered_at


def test_removes_an_endpoint_with_its_log() -> None:
    endpoint = make_endpoint(project=make_project())
    tell(endpoint, 3)

    endpoints.remove(endpoint, now=NOW)

    assert not WebhookEndpoint.present.exists()
    assert not WebhookEndpoint.objects.get().secrets
    assert claim(room=10, now=NOW) == []


def test_what_is_left_of_a_removed_endpoint_goes_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "SWEPT_AT_ONCE", 2)
    endpoint, other = make_endpoint(), make_endpoint()
    tell(endpoint, 3)
    tell(other)
    endpoints.remove(endpoint, now=NOW)

    assert [endpoints.sweep() for _time in range(4)] == [2, 1, 1, 0]
    assert [row.pk for row in WebhookEndpoint.objects.all()] == [other.pk]
    assert other.deliveries.count() == 1


def test_only_what_pilot_switched_off_needs_somebody() -> None:
    tenant = make_tenant()
    make_endpoint(tenant)
    make_endpoint(tenant, disabled_at=NOW, disabled_by="person")
    gone = make_endpoint(tenant, disabled_at=NOW, disabled_by="gone")
    make_endpoint(disabled_at=NOW, disabled_by="failing")

    assert list(endpoints.disabled_by_pilot(tenant)) == [gone]
