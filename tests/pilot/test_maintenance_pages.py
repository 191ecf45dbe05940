"""Starting a round by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from accounts.models import User
from pilot import celery
from pilot.models import MaintenanceRun
from pilot.queues import broker_key
from pilot.redis import client
from tests.factories import NOW

pytestmark = pytest.mark.django_db

LIST = "/admin/pilot/maintenancerun/"


@pytest.fixture(autouse=True)
def _queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A queue that no worker of another test listens to."""
    monkeypatch.setattr(celery, "_down_until", 0.0)
    client().delete(broker_key("health"))
    yield
    client().delete(broker_key("health"))


def staff(*rights: str) -> Client:
    user = User.objects.create(email=f"{len(rights)}@example.com", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    browser = Client(headers={"accept-language": "en"})
    browser.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return browser


def start(browser: Client, kind: str = "reconcile") -> tuple[int, str]:
    response = browser.post(reverse("admin:pilot_maintenancerun_start", args=[kind]), follow=True)
    return response.status_code, response.content.decode()


def test_asks_a_worker_for_a_round() -> None:
    status, page = start(staff("view_maintenancerun", "start_maintenance"))

    assert (status, "It will start within seconds" in page) == (200, True)
    assert client().llen(broker_key("health")) == 1


def test_needs_the_right_to_it() -> None:
    browser = staff("view_maintenancerun")

    assert start(browser)[0] == 403
    assert "Start now" not in browser.get(LIST).content.decode()


def test_is_not_started_by_a_link() -> None:
    browser = staff("view_maintenancerun", "start_maintenance")

    assert browser.get(reverse("admin:pilot_maintenancerun_start", args=["reconcile"])).status_code == 405
    assert "Start now: Reconciler" in browser.get(LIST).content.decode()


def test_knows_only_its_own_rounds() -> None:
    assert start(staff("view_maintenancerun", "start_maintenance"), "pulse")[0] == 404


def test_says_when_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_args: object, **_kwargs: object) -> None:
        raise ConnectionError

    monkeypatch.setattr(celery, "_publish", away)

    assert "Redis does not answer" in start(staff("view_maintenancerun", "start_maintenance"))[1]


def test_lists_rounds_with_what_they_did() -> None:
    MaintenanceRun.objects.create(
        kind="reconcile", started_at=NOW, finished_at=NOW, outcome="done", changed=73
    )

    page = staff("view_maintenancerun").get(LIST).content.decode()

    assert "73" in page
    assert "0.0 s" in page
