"""Accounts at Meta: linked, shown, removed; their templates and files."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import Role, Tenant
from instances import connecting, linking, media, meta_apps, meta_templates
from instances.connecting import ConnectingError, NameTakenError
from instances.linking import AlreadyLinkedError
from instances.media import InvalidMedia, NoUploadError
from instances.models import Instance, InstanceEvent, MetaApp, MetaTemplate, UploadedMedia
from tests.factories import make_instance, make_key, make_tenant
from tests.members import member
from tests.meta import SECRET, make_app, make_meta_instance
from tests.sandbox.emulator import Emulator
from tests.sandbox.graph import GraphAccount

pytestmark = pytest.mark.django_db


@pytest.fixture
def account(sandbox: Emulator, settings: Any) -> GraphAccount:
    settings.META_GRAPH_URL = sandbox.url
    meta_templates.forget()
    return GraphAccount(sandbox, "11111", business_id="22222", display_number="+55 11 3000-0000")


def link(tenant: Tenant, now: datetime, **fields: Any) -> Instance:
    values = {
        "name": "oficial",
        "phone_number_id": "11111",
        "business_id": "22222",
        "token": "token-11111",
        "app_secret": SECRET,
    }
    return linking.link_number(tenant=tenant, now=now, **values | fields)


def test_links_a_number_that_may_send_at_once(account: GraphAccount, now: datetime) -> None:
    instance = link(make_tenant(), now)

    assert (instance.status, instance.number, instance.profile_name) == ("open", "+551130000000", "Loja")
    assert (instance.messages_per_second, instance.concurrency, instance.pace_most_seconds) == (80, 50, 0)
    assert instance.account().api_key == "token-11111"
    assert instance.lane.in_flight == 0


def test_lets_a_number_of_the_high_level_send_more(account: GraphAccount, now: datetime) -> None:
    account.change(messages_per_second=1000)

    assert link(make_tenant(), now).messages_per_second == 1000


@pytest.mark.parametrize("wrong", [{"token": "x"}, {"phone_number_id": "99999"}, {"business_id": "99999"}])
def test_links_nothing_that_meta_does_not_show_us(
    account: GraphAccount, now: datetime, wrong: dict[str, str]
) -> None:
    with pytest.raises(ConnectingError):
        link(make_tenant(), now, **wrong)

    assert not Instance.objects.exists()
    assert not MetaApp.objects.exists()


def test_shares_an_app_within_a_tenant_and_never_beyond(account: GraphAccount, now: datetime) -> None:
    tenant = make_tenant()
    first = link(tenant, now)
    with pytest.raises(AlreadyLinkedError):
        link(tenant, now, name="outro")
    with pytest.raises(NameTakenError):
        link(tenant, now, app_secret="0" * 32)
    other = link(make_tenant(), now)

    assert make_app(tenant).pk == first.app_id
    assert other.app_id != first.app_id


def test_stops_for_good_and_leaves_the_account_at_meta_alone(account: GraphAccount, now: datetime) -> None:
    instance = link(make_tenant(), now)

    connecting.remove(instance=instance, now=now)

    instance.refresh_from_db()
    assert instance.status == "removed"
    assert link(instance.tenant, now).pk != instance.pk


@pytest.mark.parametrize("verb", ["pair", "restart", "logout"])
def test_says_that_nothing_is_to_be_paired(account: GraphAccount, now: datetime, verb: str) -> None:
    instance = link(make_tenant(), now)

    with pytest.raises(ConnectingError) as refused:
        getattr(connecting, verb)(instance=instance, now=now)

    assert refused.value.code == "unsupported"


# --- the dashboard ----------------------------------------------------------------------------------------

FORM = {
    "name": "oficial",
    "phone_number_id": "11111",
    "business_id": "22222",
    "token": "token-11111",
    "app_secret": "0123456789abcdef" * 2,
}


def test_an_administrator_links_a_number_and_sees_what_to_enter_at_meta(
    account: GraphAccount,
) -> None:
    client = member(make_tenant(), role=Role.ADMIN)

    answer = client.post("/link/meta", FORM, follow=True)

    instance = Instance.objects.get()
    shown = answer.content.decode()
    assert answer.redirect_chain[-1][0] == "/instances/oficial"
    assert meta_apps.callback_url(instance.app) in shown
    assert instance.app.verify_token in shown
    assert "token-11111" not in shown
    assert FORM["app_secret"] not in shown
    assert InstanceEvent.objects.filter(instance=instance, kind="open").exists()


@pytest.mark.parametrize(
    ("field", "value"), [("phone_number_id", "x"), ("app_secret", "short"), ("token", ""), ("token", "x")]
)
def test_tells_what_is_wrong_and_links_nothing(account: GraphAccount, field: str, value: str) -> None:
    client = member(make_tenant(), role=Role.ADMIN)

    answer = client.post("/link/meta", FORM | {field: value})

    assert answer.status_code == 200
    assert "errorlist" in answer.content.decode()
    assert not Instance.objects.exists()


def test_only_an_administrator_links_and_only_what_exists() -> None:
    tenant = make_tenant()
    assert member(tenant, role=Role.AGENT).get("/link/meta").status_code == 403
    client = member(tenant, role=Role.ADMIN)
    assert client.get("/link/meta").status_code == 200
    assert client.get("/link/telegram").status_code == 404


def test_takes_another_token_that_meta_accepts_and_sends_again(account: GraphAccount) -> None:
    tenant = make_tenant()
    client = member(tenant, role=Role.ADMIN)
    instance = link(tenant, timezone.now())
    Instance.objects.filter(pk=instance.pk).update(status="degraded", status_reason="provider_misconfigured")
    account.change(token="renewed")

    client.post("/instances/oficial/token", {"token": "wrong"})
    instance.refresh_from_db()
    assert (instance.status, instance.account().api_key) == ("degraded", "token-11111")

    client.post("/instances/oficial/token", {"token": "renewed"})
    instance.refresh_from_db()
    assert (instance.status, instance.account().api_key) == ("open", "renewed")


def test_takes_a_token_of_its_own_tenant_s_linked_accounts_only(account: GraphAccount) -> None:
    tenant = make_tenant()
    link(tenant, timezone.now())
    paired = make_instance(tenant)
    url, body = "/instances/{}/token", {"token": "token-11111"}

    assert member(make_tenant(), role=Role.ADMIN).post(url.format("oficial"), body).status_code == 404
    assert member(tenant, role=Role.ADMIN).post(url.format(paired.name), body).status_code == 404
    assert member(tenant, role=Role.AGENT).post(url.format("oficial"), body).status_code == 403


# --- templates --------------------------------------------------------------------------------------------

BODY = {"type": "BODY", "text": "Olá {{1}}, pedido {{2}}"}


def test_fetches_what_meta_has_page_by_page(account: GraphAccount, now: datetime) -> None:
    instance = link(make_tenant(), now)
    for n in range(130):
        account.do("template", name=f"t{n}", language="pt_BR", components=[BODY])

    assert meta_templates.fetch_due(now=now) == {"fetched": 1, "failed": 0}

    assert MetaTemplate.objects.filter(instance=instance).count() == 130
    assert meta_templates.fetch_due(now=now + timedelta(minutes=59)) == {"fetched": 0, "failed": 0}
    account.do("template", name="t0", language="pt_BR", status="PAUSED")
    assert meta_templates.fetch_due(now=now + timedelta(hours=1)) == {"fetched": 1, "failed": 0}
    assert MetaTemplate.objects.get(name="t0").status == "PAUSED"


def test_forgets_a_template_that_is_gone(account: GraphAccount, now: datetime) -> None:
    instance = link(make_tenant(), now)
    MetaTemplate.objects.create(
        instance=instance, name="old", language="en", status="APPROVED", synced_at=now
    )

    meta_templates.fetch(instance, now=now + timedelta(hours=1))

    assert not MetaTemplate.objects.exists()


def test_goes_on_when_one_number_cannot_be_asked(account: GraphAccount, now: datetime) -> None:
    link(make_tenant(), now)
    make_meta_instance(account_id="333", credentials={"token": "x"})

    assert meta_templates.fetch_due(now=now) == {"fetched": 1, "failed": 1}


def body(*texts: str, **names: str) -> list[dict[str, Any]]:
    parameters = [{"type": "text", "text": text} for text in texts]
    parameters += [{"type": "text", "text": v, "parameter_name": k} for k, v in names.items()]
    return [{"type": "body", "parameters": parameters}]


HEADER = [{"type": "header", "parameters": [{"type": "image", "image": {"id": "1"}}]}]


@pytest.mark.parametrize(
    ("template", "content", "wrong"),
    [
        ({}, {"components": body("Ana", "42")}, set()),
        ({}, {"components": body("Ana")}, {"components"}),
        ({}, {}, {"components"}),
        ({}, {"language": "en", "components": body("Ana", "42")}, {"language"}),
        ({}, {"name": "another"}, {"name"}),
        ({"status": "PAUSED"}, {"components": body("Ana", "42")}, {"name"}),
        ({"components": [{"type": "HEADER", "format": "IMAGE"}]}, {"components": HEADER}, set()),
        ({"components": [{"type": "HEADER", "format": "IMAGE"}]}, {}, {"components"}),
        ({"components": [{"type": "HEADER", "format": "VIDEO"}]}, {"components": HEADER}, {"components"}),
        ({"components": [{"type": "FOOTER", "text": "x"}]}, {}, set()),
        (
            {"parameter_format": "NAMED", "components": [{"type": "BODY", "text": "{{nome}}"}]},
            {"components": body(nome="Ana")},
            set(),
        ),
        (
            {"parameter_format": "NAMED", "components": [{"type": "BODY", "text": "{{nome}}"}]},
            {"components": body("Ana")},
            {"components"},
        ),
    ],
)
def test_knows_before_what_meta_would_refuse(
    now: datetime, template: dict[str, Any], content: dict[str, Any], wrong: set[str]
) -> None:
    meta_templates.forget()
    instance = make_meta_instance()
    known = {"name": "pedido", "language": "pt_BR", "status": "APPROVED", "components": [BODY]}
    MetaTemplate.objects.create(instance=instance, synced_at=now, **known | template)
    sent = {"type": "template", "name": "pedido", "language": "pt_BR"} | content

    assert meta_templates.faults(instance, sent).keys() == wrong


def test_checks_nothing_while_no_template_was_ever_fetched() -> None:
    meta_templates.forget()
    content = {"type": "template", "name": "pedido", "language": "pt_BR"}

    assert meta_templates.faults(make_meta_instance(), content) == {}


# --- files ------------------------------------------------------------------------------------------------

PNG = {"name": "a.png", "mime_type": "image/png", "data": b"\x89PNG"}


def test_uploads_the_same_content_once_while_its_id_lives(account: GraphAccount, now: datetime) -> None:
    instance = link(make_tenant(), now)

    first = media.upload(instance=instance, now=now, **PNG)
    again = media.upload(instance=instance, now=now + timedelta(days=27), **PNG | {"name": "b.png"})
    assert first.media_id == again.media_id
    renewed = media.upload(instance=instance, now=now + timedelta(days=29), **PNG)

    assert renewed.media_id != first.media_id
    assert UploadedMedia.objects.get().media_id == renewed.media_id
    assert media.forget_expired(now=now + timedelta(days=60)) == 1
    uploads = [each for each in account.emulator.requests() if each["op"] == "media/upload"]
    assert len(uploads) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"mime_type": "audio/opus"},
        {"mime_type": "image/gif"},
        {"data": b""},
        {"data": b"x" * (5 * 1024 * 1024 + 1)},
    ],
)
def test_refuses_before_uploading_what_meta_would_refuse(
    account: GraphAccount, now: datetime, wrong: dict[str, Any]
) -> None:
    instance = link(make_tenant(), now)
    with pytest.raises(InvalidMedia) as refused:
        media.upload(instance=instance, now=now, **PNG | wrong)

    assert refused.value.fields.keys() == {"file"}
    assert not [each for each in account.emulator.requests() if each["op"] == "media/upload"]


def test_says_that_an_instance_takes_addresses_only(now: datetime) -> None:
    with pytest.raises(NoUploadError):
        media.upload(instance=make_instance(), now=now, **PNG)


def test_takes_a_file_through_the_api(client: Client, account: GraphAccount, now: datetime) -> None:
    key, raw = make_key()
    instance = link(key.project.tenant, now)
    headers = {"apikey": raw}

    def post(query: str, data: bytes = b"\x89PNG", mime_type: str = "image/png") -> Any:
        return client.post(f"/api/media?{query}", data, content_type=mime_type, headers=headers)

    answer = post("instance=oficial&filename=a.png")
    assert answer.status_code == 201
    assert answer.json()["media_id"] == UploadedMedia.objects.get(instance=instance).media_id
    assert post("instance=none&filename=a.png").status_code == 404
    assert post("instance=oficial").status_code == 400
    assert post("instance=oficial&filename=a&colour=red").status_code == 400
    refused = post("instance=oficial&filename=a.opus", mime_type="audio/opus")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_media")
    stranger = {"apikey": make_key()[1]}
    url = "/api/media?instance=oficial&filename=a.png"
    assert client.post(url, b"x", content_type="image/png", headers=stranger).status_code == 404
