"""How often a key and its tenant may ask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from accounts.api import limits
from messaging.api.batching import Ask, answer_all
from messaging.models import Message
from pilot.buckets import Buckets
from tests import factories
from tests.messaging.api.conftest import Api, World
from tests.messaging.api.test_messages import TEXT, error
from tests.webs import running_web

NO_TIME = 0.001  # tokens a second: none comes while a test runs


@pytest.fixture(autouse=True)
def _own_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rolled back, ids of keys come again, and their buckets are still empty."""
    monkeypatch.setattr(limits, "BUCKETS", Buckets()._own)


@pytest.fixture
def _fifty(settings: Any) -> None:
    settings.API_KEY_RATE, settings.API_KEY_BURST = NO_TIME, 50


def left(answer: Any, policy: str = "key") -> int:
    [item] = [item for item in answer.headers["RateLimit"].split(", ") if item.startswith(f'"{policy}"')]
    return int(item.split(";")[1].removeprefix("r="))


@pytest.mark.usefixtures("_fifty")
def test_lets_fifty_of_three_hundred_in(world: World) -> None:
    answers = [world.api.get("/api/keys") for _ in range(300)]
    assert [answer.status_code for answer in answers] == [200] * 50 + [429] * 250
    assert [left(answer) for answer in answers] == [*range(49, -1, -1), *[0] * 250]


@pytest.mark.usefixtures("_fifty")
def test_says_when_to_come_back(world: World) -> None:
    for _ in range(51):
        answer = world.api.post("/api/messages/batch", {"messages": [TEXT, TEXT]})
    assert (answer.status_code, error(answer)["code"]) == (429, "rate_limited")
    assert 900 < int(answer["Retry-After"]) <= 1001
    assert answer["RateLimit-Policy"].startswith('"key";q=50;w=50000, "tenant";q=')
    assert Message.objects.count() == 100  # a batch is one request


@pytest.mark.usefixtures("_fifty")
def test_counts_what_is_refused_for_another_reason(world: World) -> None:
    poor = Api(factories.make_key(world.project, scopes=["messages:read"])[1])
    answers = [
        poor.get("/api/keys"),
        poor.get("/api/messages/unknown"),
        poor.post("/api/messages", b"{"),
        poor.call("DELETE", "/api/queues"),
        poor.call("OPTIONS", "/api/queues"),
    ]
    assert [answer.status_code for answer in answers] == [403, 404, 403, 405, 204]
    assert [left(answer) for answer in answers] == [49, 48, 47, 46, 45]


def test_counts_nobody_without_a_key(world: World) -> None:
    assert "RateLimit" not in Api("wrong").get("/api/keys").headers
    assert "RateLimit" not in world.api.get("/api/schema").headers


def test_bounds_all_keys_of_a_tenant_together(world: World, settings: Any) -> None:
    settings.API_TENANT_RATE, settings.API_TENANT_BURST = NO_TIME, 3
    other = Api(factories.make_key(factories.make_project(world.project.tenant))[1])
    answers = [
        api.get("/api/keys").status_code for api in (world.api, other, other, world.api, world.stranger)
    ]
    assert answers == [200, 200, 200, 429, 200]


def test_may_be_switched_off(world: World, settings: Any) -> None:
    settings.API_KEY_RATE = settings.API_TENANT_RATE = 0
    answer = world.api.get("/api/keys")
    assert answer.status_code == 200
    assert not {"RateLimit", "RateLimit-Policy"} & set(answer.headers)


# --- the short way ----------------------------------------------------------------------------------------


def test_counts_those_that_come_together(db: None, settings: Any) -> None:
    settings.API_KEY_RATE, settings.API_KEY_BURST = NO_TIME, 3
    (_key, raw), (_other, other) = factories.make_sender(), factories.make_sender()
    asks = [Ask(each, json.dumps(TEXT).encode(), None, "r", "en") for each in [raw] * 5 + [other, "unknown"]]

    replies = answer_all(asks)

    assert [reply and reply.status for reply in replies] == [202, 202, 202, 429, 429, 202, None]
    refused = replies[3]
    assert refused
    assert (refused.body["error"]["code"], refused.body["error"]["request_id"]) == ("rate_limited", "r")
    assert 900 < int(refused.headers["Retry-After"]) <= 1001
    assert [ask.drawn and ask.drawn.granted for ask in asks] == [3, 3, 3, 3, 3, 1, None]
    assert Message.objects.count() == 4


@pytest.fixture
def web(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    monkeypatch.setenv("API_KEY_RATE", "1")
    monkeypatch.setenv("API_KEY_BURST", "1000")
    with running_web(factories.make_sender()[1]) as client:
        yield client


def test_counts_once_what_goes_both_ways(web: httpx.Client) -> None:
    before = left(web.get("/api/queues"))
    refused = [
        web.post("/api/messages", content=b"{}", headers={"Content-Type": "application/json"}) for _ in "123"
    ]
    assert [answer.status_code for answer in refused] == [400] * 3
    assert left(refused[-1]) >= before - 3
    assert left(web.post("/api/messages", json=TEXT)) < before


def test_refuses_both_ways_alike(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY_RATE", "1")
    monkeypatch.setenv("API_KEY_BURST", "1")
    with running_web(factories.make_sender()[1]) as client:
        short, long = (refused(client, headers) for headers in ({}, {"Cookie": "a=b"}))
    varying = {"date", "x-request-id", "content-length", "ratelimit", "retry-after"}
    assert set(short.headers) == set(long.headers)
    for name in set(short.headers) - varying:
        assert short.headers[name] == long.headers[name], name
    assert set(short.json()["error"]) == set(long.json()["error"])
    assert {answer.json()["error"]["code"] for answer in (short, long)} == {"rate_limited"}


def refused(client: httpx.Client, headers: dict[str, str]) -> httpx.Response:
    """The first answer 429; a token comes every second."""
    answers = (client.post("/api/messages", json=TEXT, headers=headers) for _ in range(50))
    return next(answer for answer in answers if answer.status_code == 429)
