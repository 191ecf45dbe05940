"""Which tenant a person acts for, and who may see and do what: every page of the dashboard."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from django.utils import timezone

import pilot.urls
from accounts.models import ApiKey, Membership, Role
from instances.models import Instance
from messaging.models import Message
from tests.factories import NOW, make_instance, make_key, make_message, make_project, make_tenant
from tests.members import make_user, member, signed_in
from tests.webhooks.tellings import make_endpoint
from webhooks.models import WebhookDelivery, WebhookEvent

pytestmark = pytest.mark.django_db

ROUTES = sorted(str(pattern.name) for pattern in pilot.urls.dashboard)
ASKED = {
    "edit_webhook",
    "new_key",
    "new_webhook",
    "link_account",
    "queue_action",
    "remove_instance",
    "remove_webhook",
    "replay_webhook",
    "revoke_key",
    "rotate_key",
    "rotate_webhook",
    "verify_webhook",
}  # pages that ask first, and act on POST
POSTED = ASKED | {
    "act_on_instance",
    "alert_settings",
    "choose_tenant",
    "new_instance",
    "pair_instance",
    "renew_token",
    "resend_webhook",
    "switch_webhook",
    "test_webhook",
}
MANAGED = POSTED - {"choose_tenant"} | {
    "audit",
    "keys",
    "webhook",
    "webhook_delivery",
    "webhook_events",
    "webhooks",
}
NO_OBJECT = {"link_account"}
PREFIX = "pilot_live_00000001"
ENDPOINT = UUID("01a229bf-821f-7117-bb89-e359d97dd0bf")
DELIVERY = 7


@pytest.fixture
def instance() -> Instance:
    return make_instance(make_tenant(), name="vendas")


@pytest.fixture
def message(instance: Instance) -> Message:
    """A message of a tenant that has a key and a webhook as well."""
    message = make_message(instance=instance, id="m1")
    key, _raw = make_key(message.project)
    ApiKey.objects.filter(pk=key.pk).update(prefix=PREFIX)
    endpoint = make_endpoint(message.tenant, id=ENDPOINT)
    event = WebhookEvent.objects.create(name="evt_1", type="message.read", tenant=message.tenant, at=NOW)
    WebhookDelivery.objects.create(id=DELIVERY, endpoint=endpoint, event=event, created_at=NOW)
    return message


def _url(route: str) -> str:
    arguments = {
        "message": ["m1"],
        "message_progress": ["m1"],
        "act_on_instance": ["vendas", "pause"],
        "alert_settings": [],
        "alerts": [],
        "audit": [],
        "choose_tenant": [],
        "home": [],
        "instances": [],
        "keys": [],
        "link_account": ["meta"],
        "messages": [],
        "new_instance": [],
        "new_key": [],
        "queue_action": ["vendas", "pause"],
        "queues": [],
        "revoke_key": [PREFIX],
        "rotate_key": [PREFIX],
        "new_webhook": [],
        "webhook_events": [],
        "webhooks": [],
        "resend_webhook": [ENDPOINT, DELIVERY],
        "switch_webhook": [ENDPOINT, "off"],
        "webhook_delivery": [ENDPOINT, DELIVERY],
    } | {
        f"{name}webhook": [ENDPOINT]
        for name in ("", "edit_", "remove_", "replay_", "rotate_", "test_", "verify_")
    }
    return reverse(f"dashboard:{route}", args=arguments.get(route, ["vendas"]))


def _visit(browser: Client, route: str, **fields: str) -> HttpResponse:
    """What the browser's usual request of the route is answered with."""
    return browser.post(_url(route), fields) if route in POSTED else browser.get(_url(route))


OF_AN_OBJECT = [route for route in ROUTES if "/" in _url(route)[1:] and route not in NO_OBJECT]


@pytest.mark.parametrize("route", ROUTES)
def test_sends_strangers_to_the_sign_in_page(client: Client, message: Message, route: str) -> None:
    response = _visit(client, route)

    assert response.status_code == 302
    assert response.headers["Location"].startswith(reverse("account_login"))


@pytest.mark.parametrize("route", [route for route in ROUTES if route not in POSTED | MANAGED])
def test_shows_members_their_pages(message: Message, route: str) -> None:
    assert member(message.tenant, role=Role.VIEWER).get(_url(route)).status_code == 200


@pytest.mark.parametrize("route", OF_AN_OBJECT)
def test_hides_what_another_tenant_has(message: Message, route: str) -> None:
    assert _visit(member(make_tenant()), route).status_code == 404


@pytest.mark.parametrize("role", [Role.VIEWER, Role.AGENT])
@pytest.mark.parametrize("route", sorted(MANAGED))
def test_lets_only_administrators_manage(message: Message, route: str, role: Role) -> None:
    response = _visit(member(message.tenant, role=role), route, name="another")

    assert response.status_code == 403
    assert ApiKey.objects.filter(revoked_at=None).count() == 1
    assert Instance.objects.filter(status="open", paused=False).count() == 1


@pytest.mark.parametrize("route", sorted(POSTED - ASKED))
def test_changes_nothing_on_get(message: Message, route: str) -> None:
    assert member(message.tenant).get(_url(route)).status_code == 405


def test_refuses_a_post_without_its_token(instance: Instance) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(make_user(instance.tenant), backend="django.contrib.auth.backends.ModelBackend")

    response = browser.post(_url("act_on_instance"))

    instance.refresh_from_db()
    assert response.status_code == 403
    assert not instance.paused


def test_reloads_a_live_page_whose_session_ended(client: Client, message: Message) -> None:
    response = client.get(_url("message_progress"), headers={"HX-Request": "true"})

    assert response.headers["HX-Refresh"] == "true"
    assert message.to not in response.content.decode()


def test_tells_a_person_without_a_team() -> None:
    response = member().get("/")

    assert response.status_code == 403
    assert "no team has added you" in response.content.decode()


def test_refuses_a_person_who_was_deactivated(instance: Instance) -> None:
    user = make_user(instance.tenant)
    browser = signed_in(user)
    user.is_active = False
    user.save()

    assert browser.get("/").status_code == 302


def test_forgets_a_membership_at_once(message: Message) -> None:
    user = make_user(message.tenant)
    browser = signed_in(user)
    Membership.objects.filter(user=user).delete()

    assert browser.get(_url("message")).status_code == 403


def test_switches_between_the_tenants_of_a_person(message: Message) -> None:
    other = make_tenant(name="AAA first by name")
    browser = member(message.tenant, other)
    assert browser.get(_url("message")).status_code == 404

    browser.post(reverse("dashboard:choose_tenant"), {"tenant": message.tenant_id})

    assert browser.get(_url("message")).status_code == 200


@pytest.mark.parametrize("choice", ["", "x", "999999999", "-1"])
def test_refuses_to_switch_to_nonsense(instance: Instance, choice: str) -> None:
    assert (
        member(instance.tenant).post(reverse("dashboard:choose_tenant"), {"tenant": choice}).status_code
        == 404
    )


def test_refuses_to_switch_to_a_foreign_tenant(message: Message) -> None:
    browser = member(make_tenant())

    response = browser.post(reverse("dashboard:choose_tenant"), {"tenant": message.tenant_id})

    assert response.status_code == 404
    assert browser.get(_url("message")).status_code == 404


def test_shows_times_in_the_time_zone_of_the_tenant() -> None:
    tenant = make_tenant(time_zone="Asia/Tokyo")
    make_message(make_project(tenant), id="m1")

    page = member(tenant).get(_url("message")).content.decode()

    assert "22:00:00 JST" in page  # the deadline, 13:00 UTC
    assert timezone.get_current_timezone_name() == "UTC"


def test_shows_times_in_utc_when_the_time_zone_is_unknown() -> None:
    tenant = make_tenant(time_zone="Mars/Base")
    make_message(make_project(tenant), id="m1", status="delivered")

    assert "13:00:00 UTC" in member(tenant).get(_url("message")).content.decode()


def test_keeps_its_pages_out_of_caches(message: Message) -> None:
    assert "no-store" in member(message.tenant).get("/messages").headers["Cache-Control"]


@pytest.mark.parametrize("route", ["home", "messages", "message", "instances", "instance", "keys", "new_key"])
def test_runs_nothing_but_its_own_files(message: Message, route: str) -> None:
    response = member(message.tenant).get(_url(route))

    page = response.content.decode()
    assert response.headers["Content-Security-Policy"].startswith("default-src 'self';")
    assert not re.search(r"<style|style=|<script(?![^>]* src=)|\son\w+=|(src|href)=\"https?:", page)
