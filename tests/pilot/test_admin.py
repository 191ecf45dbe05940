"""The administration: every page of every model opens, cheaply, and shows no secret."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from axes.models import AccessAttempt, AccessLog
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts import audit, events
from accounts.models import ApiKey, AuditEntry, Membership, User
from billing.models import Usage
from instances.models import (
    Breaker,
    DefaultInstance,
    EvolutionServer,
    Instance,
    InstanceEvent,
    InstanceHour,
    MetaTemplate,
    Outage,
    UploadedMedia,
    Vitals,
)
from messaging.models import (
    CommentAnswer,
    Contact,
    IdempotencyKey,
    Message,
    MessageEvent,
    MessageLabel,
    ParkedReceipt,
    ProjectTurn,
    Purge,
    ReceivedMessage,
    UnknownPolicy,
    Window,
)
from pilot.models import (
    Alert,
    AlertDelivery,
    BeatRun,
    Heartbeat,
    Lease,
    MaintenanceRun,
    RetentionPlace,
    StreamPlace,
    Tally,
)
from tests import factories
from tests.factories import NOW
from tests.meta import make_app
from tests.webhooks.tellings import make_endpoint
from webhooks.models import InboundCall, WebhookDelivery, WebhookEvent, WebhookReplay

pytestmark = pytest.mark.django_db

OURS = {"accounts", "billing", "instances", "messaging", "pilot", "webhooks"}
admin.autodiscover()  # as pilot/urls.py does
MODELS = sorted(admin.site._registry, key=lambda model: model._meta.label_lower)
FEW = 12  # queries of one page; session, user and rights take four of them
MADE_BY_PEOPLE = {
    "account.EmailAddress",
    "accounts.Membership",
    "accounts.Project",
    "accounts.Tenant",
    "accounts.User",
    "auth.Group",
    "instances.DefaultInstance",
    "instances.EvolutionServer",
    "messaging.Contact",
    "messaging.UnknownPolicy",
}
SECRETS = ("global-key", "hook-", "instance-key", "whsec_")


@pytest.fixture
def staff(client: Client) -> Client:
    client.force_login(
        User.objects.create(email="root@example.com", is_staff=True, is_superuser=True),
        backend="django.contrib.auth.backends.ModelBackend",
    )
    return client


@pytest.fixture
def world() -> None:
    """Three rows of every model, so that a query per row shows."""
    for number in range(3):
        _one_of_each(number)


def _one_of_each(number: int) -> None:
    project = factories.make_project()
    tenant = project.tenant
    instance = factories.make_instance(tenant, credentials={"apikey": "instance-key"})
    message = factories.make_message(
        project, instance, template_version=factories.make_template(project).current_version
    )
    user = User.objects.create(email=f"ana{number}@example.com")
    Membership.objects.create(tenant=tenant, user=user)
    factories.make_key(project)
    audit.record(tenant=tenant, actor=user, action="instance.paused", target=instance)
    events.record(tenant_id=tenant.pk, kind="optin.changed", data={}, at=NOW)
    factories.make_opt_in(tenant)
    Contact.objects.create(tenant=tenant, number="+5511999990000")
    DefaultInstance.objects.create(project=project, instance=instance)
    InstanceEvent.objects.create(instance=instance, kind="open")
    MessageEvent.objects.create(message=message, tenant=tenant, kind="queued", at=NOW)
    ProjectTurn.objects.create(instance=instance, project=project, turn=1)
    MessageLabel.objects.create(message=message, project=message.project, name="order", value="1042")
    IdempotencyKey.objects.create(
        tenant=tenant, environment="live", key="k", body_digest="d", message=message
    )
    ParkedReceipt.objects.create(
        instance=instance, provider_message_id="A", status="sent", at=NOW, next_look_at=NOW
    )
    ReceivedMessage.objects.create(
        tenant=tenant, instance=instance, provider_message_id="B", sender_id="s", kind="text", at=NOW
    )
    UnknownPolicy.objects.create(tenant=tenant)
    make_app(tenant, secret="instance-key")
    MetaTemplate.objects.create(instance=instance, name="t", language="en", status="APPROVED", synced_at=NOW)
    UploadedMedia.objects.create(
        instance=instance, digest="d", mime_type="a/b", media_id="1", size=1, uploaded_at=NOW, expires_at=NOW
    )
    Window.objects.create(instance=instance, address="+551199990000")
    CommentAnswer.objects.create(instance=instance, comment_id="1", message=message, at=NOW)
    Breaker.objects.create(server=instance.server)
    Vitals.objects.create(instance=instance)
    Outage.objects.create(instance=instance, kind="down", began_at=NOW)
    InboundCall.objects.create(instance=instance, event="messages.upsert", body=b'{"apikey": "instance-key"}')
    endpoint = make_endpoint(tenant, headers={"X-Key": "instance-key"})
    event = WebhookEvent.objects.create(name=f"evt_{number}", type="message.read", tenant=tenant, at=NOW)
    WebhookDelivery.objects.create(endpoint=endpoint, event=event, created_at=NOW)
    WebhookReplay.objects.create(endpoint=endpoint, since=NOW, until=NOW)
    Usage.objects.create(tenant=tenant, project=project, environment="live", month=NOW.date(), slot=0)
    Group.objects.create(name=f"group {number}")
    EmailAddress.objects.create(user=user, email=user.email)
    Authenticator.objects.create(user=user, type="totp", data={"secret": "instance-key"})
    AccessAttempt.objects.create(username=user.email, ip_address="127.0.0.1", failures_since_start=1)
    AccessLog.objects.create(username=user.email, ip_address="127.0.0.1")
    Heartbeat.objects.create(name=f"worker-{number}", kind="worker", progressed_at=NOW)
    Lease.objects.create(name=f"work-{number}", token=uuid4(), until=NOW)
    BeatRun.objects.create(name=f"entry-{number}", ran_at=NOW)
    StreamPlace.objects.create(name=f"reader-{number}")
    alert = Alert.objects.create(
        kind="instance_down", subject=instance.pk, tenant=tenant, raised_at=NOW, seen_at=NOW
    )
    AlertDelivery.objects.create(alert=alert, notice="raised", channel="pushover", language="en")
    Tally.objects.create(name="messages_sent", labels=["live", f"kind-{number}"], value=3)
    InstanceHour.objects.create(instance=instance, hour=NOW)
    Purge.objects.create(instance=instance, before=NOW, total=3, started_at=NOW)
    MaintenanceRun.objects.create(kind="reconcile", started_at=NOW, counts={"expired": number})
    RetentionPlace.objects.create(name=f"message_contents.{number}.live", reached=NOW)


def _page(model: type[Model], page: str, *args: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


@pytest.mark.parametrize("page", ["changelist", "change", "history"])
def test_shows_nothing_of_a_raw_key_but_its_prefix(staff: Client, page: str) -> None:
    key, raw = factories.make_key()

    url = _page(ApiKey, page) if page == "changelist" else _page(ApiKey, page, key.pk)
    shown = staff.get(url, follow=True).content.decode()

    assert key.prefix in shown
    assert "digest" not in shown.lower()
    assert key.digest not in shown
    assert raw not in shown


def test_has_a_page_for_every_model_of_ours() -> None:
    ours = {model for model in apps.get_models() if model._meta.app_label in OURS}

    assert ours <= set(MODELS)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label_lower)
def test_lists_every_model_in_few_queries(staff: Client, world: None, model: type[Model]) -> None:
    with CaptureQueriesContext(connection) as queries:
        response = staff.get(_page(model, "changelist"), {"q": "a"})

    assert response.status_code == 200
    assert len(queries) <= FEW, [query["sql"] for query in queries]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label_lower)
def test_opens_a_row_of_every_model_in_few_queries(staff: Client, world: None, model: type[Model]) -> None:
    row = model._default_manager.order_by("-pk").first()
    if row is None:
        pytest.fail(f"the world has no {model._meta.label}")
    with CaptureQueriesContext(connection) as queries:
        response = staff.get(_page(model, "change", row.pk))

    assert response.status_code == 200
    assert len(queries) <= 2 * FEW, [query["sql"] for query in queries]
    assert not [secret for secret in SECRETS if secret in response.content.decode()]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model._meta.label_lower)
def test_adds_only_what_people_make(staff: Client, model: type[Model]) -> None:
    response = staff.get(_page(model, "add"))

    assert response.status_code == (200 if model._meta.label in MADE_BY_PEOPLE else 403)


def test_never_edits_a_message(staff: Client, world: None) -> None:
    message = Message.objects.earliest("id")

    response = staff.post(_page(Message, "change", message.pk), {"status": "delivered", "to": "+1"})

    message.refresh_from_db()
    assert response.status_code == 403
    assert message.status == "queued"


def test_tells_a_tenant_what_support_changed(staff: Client, world: None) -> None:
    instance = Instance.objects.earliest("id")
    AuditEntry.objects.all().delete()
    page = staff.get(_page(Instance, "change", instance.pk))
    form = page.context["adminform"].form
    shown = {name: form[name].value() for name in form.fields}
    fields = {name: value for name, value in shown.items() if value is not None and value is not False}

    response = staff.post(_page(Instance, "change", instance.pk), {**fields, "concurrency": "3"})

    assert response.status_code == 302, response.context["adminform"].form.errors
    entry = AuditEntry.objects.get()
    assert (entry.tenant, entry.action) == (instance.tenant, "instance.changed")
    assert entry.detail == {"concurrency": "3"}


def test_keeps_the_key_of_a_server_when_left_empty(staff: Client) -> None:
    server = factories.make_server()

    staff.post(_page(EvolutionServer, "change", server.pk), _server(name="renamed", api_key=""))

    server.refresh_from_db()
    assert (server.name, server.api_key) == ("renamed", "global-key")


def test_replaces_the_key_of_a_server(staff: Client) -> None:
    server = factories.make_server()

    staff.post(_page(EvolutionServer, "change", server.pk), _server(api_key="another"))

    server.refresh_from_db()
    assert server.api_key == "another"


def test_asks_for_the_key_of_a_new_server(staff: Client) -> None:
    response = staff.post(_page(EvolutionServer, "add"), _server(api_key=""))

    assert response.status_code == 200
    assert not EvolutionServer.objects.exists()


def _server(**values: str) -> dict[str, str]:
    return {"name": "evo", "url": "https://evo.example.com", "capacity": "50", "accepts_new": "on"} | values


def test_hides_the_secrets_of_an_inbound_call(staff: Client, world: None) -> None:
    page = staff.get(_page(InboundCall, "change", InboundCall.objects.latest("id").pk)).content.decode()

    assert "apikey" in page
    assert "instance-key" not in page


def test_refuses_a_default_instance_of_another_tenant(staff: Client) -> None:
    project, stranger = factories.make_project(), factories.make_instance()

    response = staff.post(_page(DefaultInstance, "add"), {"project": project.pk, "instance": stranger.pk})

    assert response.status_code == 200
    assert not DefaultInstance.objects.exists()


def test_revokes_the_selected_keys(staff: Client) -> None:
    key, _raw = factories.make_key()

    staff.post(_page(ApiKey, "changelist"), {"action": "revoke", "_selected_action": [key.pk]})

    key.refresh_from_db()
    assert key.revoked_at
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.action, entry.tenant) == ("root@example.com", "key.revoked", key.tenant)


def test_makes_a_user_who_can_sign_in(staff: Client) -> None:
    password = "uma-senha-bem-longa"
    fields = {"email": "Nova@Example.com", "password1": password, "password2": password}
    no_memberships = {"memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0"}

    staff.post(_page(User, "add"), {**fields, "usable_password": "true", **no_memberships})

    assert User.objects.get(email="nova@example.com").check_password(password)


def test_sends_strangers_to_the_sign_in_page(client: Client) -> None:
    response = client.get(reverse("admin:index"))

    assert response.status_code == 302
    assert client.get(response.headers["Location"], follow=True).request["PATH_INFO"] == reverse(
        "account_login"
    )


def test_refuses_members_who_are_not_staff(client: Client) -> None:
    client.force_login(
        User.objects.create(email="ana@example.com"), backend="django.contrib.auth.backends.ModelBackend"
    )

    assert client.get(reverse("admin:index"), follow=True).status_code == 403
