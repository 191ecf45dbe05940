"""The API's door."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import RequestFactory
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.api.authentication import key_of, raw_key
from accounts.models import Scope
from tests import factories


class Undeclared(APIView):
    """Forgot to say which scope its method needs."""

    write_scope = Scope.MESSAGES_WRITE

    def get(self, request: Request) -> Response:
        return Response({"key": key_of(request).pk})

    def post(self, request: Request) -> Response:
        return Response({"key": key_of(request).pk})


def answer(method: str = "post", **headers: str) -> Any:
    request = getattr(RequestFactory(), method)("/", headers=headers)
    return Undeclared.as_view()(request)


@pytest.mark.parametrize(
    ("headers", "raw"),
    [
        ({}, ""),
        ({"apikey": " k "}, "k"),
        ({"Authorization": "Bearer k"}, "k"),
        ({"Authorization": "bearer  k "}, "k"),
        ({"Authorization": "Basic azo="}, ""),
        ({"Authorization": "Bearer"}, ""),
        ({"Authorization": "k"}, ""),
        ({"apikey": "a", "Authorization": "Bearer b"}, "a"),
        ({"apikey": "", "Authorization": "Bearer b"}, "b"),
    ],
)
def test_reads_the_key_from_either_header(headers: dict[str, str], raw: str) -> None:
    assert raw_key(Request(RequestFactory().get("/", headers=headers))) == raw


@pytest.mark.parametrize("header", ["apikey", "Authorization"])
def test_lets_a_key_in(db: None, header: str) -> None:
    key, raw = factories.make_key()
    response = answer(**{header: raw if header == "apikey" else f"Bearer {raw}"})
    assert (response.status_code, response.data) == (200, {"key": key.pk})


@pytest.mark.parametrize("headers", [{}, {"apikey": "wrong"}, {"Authorization": "Basic azo="}])
def test_tells_strangers_how_to_come_in(db: None, headers: dict[str, str]) -> None:
    response = answer(**headers)
    assert response.status_code == 401
    assert response["WWW-Authenticate"] == 'Bearer realm="Pilot API"'


def test_does_not_tell_why_a_key_is_not_good(db: None) -> None:
    _key, expired = factories.make_key(expires_at=timezone.now())
    assert answer(apikey=expired).data["error"]["message"] == answer(apikey="wrong").data["error"]["message"]


def test_lets_nobody_through_a_method_without_a_scope(db: None) -> None:
    _key, raw = factories.make_key()
    assert answer("get", apikey=raw).status_code == 403


def test_says_that_there_is_no_such_method(db: None) -> None:
    class ReadOnly(APIView):
        read_scope = Scope.MESSAGES_READ

    _key, raw = factories.make_key()
    request = RequestFactory().post("/", headers={"apikey": raw})
    assert ReadOnly.as_view()(request).status_code == 405
