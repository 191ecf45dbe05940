"""The pages that say no, and the sprite that all pages draw from."""

from __future__ import annotations

import re

import pytest
from django.conf import settings
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.test import Client, RequestFactory
from django.urls import reverse
from django.views import defaults

from tests.factories import make_tenant
from tests.members import make_user, member, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def request_(rf: RequestFactory) -> HttpRequest:
    return rf.get("/", headers={"accept-language": "en"})


def test_says_that_there_is_nothing() -> None:
    response = member(make_tenant()).get("/no-such-page")

    assert response.status_code == 404
    assert "There is nothing here" in response.content.decode()


def test_says_that_a_role_does_not_suffice() -> None:
    response = member(make_tenant(), role="viewer").post(reverse("dashboard:new_instance"))

    assert response.status_code == 403
    assert "You may not do this" in response.content.decode()


def test_says_that_a_form_is_out_of_date() -> None:
    browser = Client(enforce_csrf_checks=True, headers={"accept-language": "en"})

    response = browser.post(reverse("account_login"), {"login": "ana@example.com"})

    assert response.status_code == 403
    assert "This form is out of date" in response.content.decode()


def test_says_that_it_broke_without_needing_anything(request_: HttpRequest) -> None:
    response = defaults.server_error(request_)

    assert response.status_code == 500
    assert "pilot.css" in response.content.decode()


def test_offers_the_administration_to_staff_without_a_team() -> None:
    user = make_user()
    user.is_staff = True
    user.save()

    page = signed_in(user).get("/").content.decode()

    assert reverse("admin:index") in page


def test_draws_only_icons_that_exist() -> None:
    sprite = (settings.BASE_DIR / "static" / "icons.svg").read_text()
    templates = (settings.BASE_DIR / "templates").rglob("*.html")
    used = {
        name for path in templates for name in re.findall(r'_icon.html" with name="(\w+)"', path.read_text())
    }

    assert used
    assert used <= set(re.findall(r'<symbol id="(\w+)"', sprite))


def test_says_which_page_is_open() -> None:
    page = member(make_tenant()).get("/messages").content.decode()

    current = re.findall(r'<a href="([^"]+)" aria-current="page"', page)
    assert current == [reverse("dashboard:messages")]


def test_renders_too_many_requests() -> None:
    assert "pilot.css" in render_to_string("429.html")
