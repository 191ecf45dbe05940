"""Signing in by e-mail, its limits, and the language of the pages."""

from __future__ import annotations

import pytest
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.core.cache import cache
from django.test import Client, override_settings
from django.urls import reverse

from accounts.models import User
from tests.factories import make_tenant
from tests.members import make_user

pytestmark = pytest.mark.django_db

PASSWORD = "uma-senha-bem-longa"
LOGIN = "/accounts/login/"


@pytest.fixture(autouse=True)
def _no_attempts_yet() -> None:
    cache.clear()


@pytest.fixture
def user() -> User:
    user = make_user(make_tenant(name="Padaria"), email="ana@example.com")
    user.set_password(PASSWORD)
    user.save()
    return user


@pytest.fixture
def browser() -> Client:
    return Client(headers={"accept-language": "en"})


def _sign_in(browser: Client, email: str = "ana@example.com", password: str = PASSWORD) -> str:
    response = browser.post(LOGIN, {"login": email, "password": password}, follow=True)
    return str(response.content.decode())


@pytest.mark.parametrize("email", ["ana@example.com", "Ana@Example.com"])
def test_signs_in_by_e_mail(browser: Client, user: User, email: str) -> None:
    assert "Padaria" in _sign_in(browser, email)


@pytest.mark.usefixtures("without_redis")
def test_signs_in_while_redis_is_away(browser: Client, user: User) -> None:
    """Attempts are still counted: django-axes has them in the database."""
    assert "Padaria" in _sign_in(browser)


def test_goes_where_the_person_wanted_to_go(browser: Client, user: User) -> None:
    response = browser.post(f"{LOGIN}?next=/messages", {"login": user.email, "password": PASSWORD})

    assert response.headers["Location"] == "/messages"


def test_never_goes_to_a_foreign_site(browser: Client, user: User) -> None:
    response = browser.post(f"{LOGIN}?next=https://evil.example", {"login": user.email, "password": PASSWORD})

    assert response.headers["Location"] == "/"


def test_says_no_alike_to_a_wrong_password_and_to_an_unknown_person(browser: Client, user: User) -> None:
    wrong = _sign_in(browser, password="wrong")
    unknown = _sign_in(browser, email="bia@example.com")

    said = "The email address and/or password you specified are not correct."
    assert said in wrong
    assert said in unknown


@override_settings(AXES_FAILURE_LIMIT=3)
def test_closes_the_door_after_too_many_attempts(browser: Client, user: User) -> None:
    for _attempt in range(3):
        page = _sign_in(browser, password="wrong")
    assert "Too many attempts" in page

    assert "Too many attempts" in _sign_in(browser)


@override_settings(AXES_FAILURE_LIMIT=3)
def test_closes_it_for_that_person_only(browser: Client, user: User) -> None:
    for _attempt in range(3):
        _sign_in(browser, email="bia@example.com", password="wrong")

    assert "Padaria" in _sign_in(browser)


def test_has_no_sign_up(browser: Client) -> None:
    response = browser.post(
        reverse("account_signup"), {"email": "eva@example.com", "password1": PASSWORD, "password2": PASSWORD}
    )

    assert response.status_code == 200
    assert not User.objects.exists()


def test_signs_out(browser: Client, user: User) -> None:
    _sign_in(browser)

    browser.post(reverse("account_logout"))

    assert browser.get("/").status_code == 302


@pytest.mark.parametrize(
    "name",
    ["account_login", "account_reset_password", "account_change_password", "mfa_index", "mfa_activate_totp"],
)
def test_wears_its_own_clothes(browser: Client, user: User, name: str) -> None:
    if name not in {"account_login", "account_reset_password"}:
        _sign_in(browser)

    page = browser.get(reverse(name), follow=True).content.decode()

    assert "pilot.css" in page
    assert 'class="brand"' in page


def test_asks_for_the_second_factor(browser: Client, user: User) -> None:
    TOTP.activate(user, generate_totp_secret())

    page = _sign_in(browser)

    assert "authenticator code" in page
    assert browser.get("/").status_code == 302


@pytest.mark.parametrize(
    ("wanted", "lang"),
    [("pt-BR,pt;q=0.9", "pt-br"), ("en-GB,en;q=0.8", "en"), ("de", "pt-br"), ("", "pt-br")],
)
def test_speaks_the_language_of_the_browser(wanted: str, lang: str) -> None:
    page = Client().get(LOGIN, headers={"accept-language": wanted}).content.decode()

    assert f'<html lang="{lang}">' in page


def test_remembers_the_language_that_a_person_chose(browser: Client) -> None:
    response = browser.post(reverse("set_language"), {"language": "pt-br", "next": LOGIN})

    assert response.headers["Location"] == LOGIN
    assert '<html lang="pt-br">' in browser.get(LOGIN).content.decode()
