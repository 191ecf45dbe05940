"""POST /api/messages/batch, cancel, why, and the filters by reference and metadata."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from messaging.models import IdempotencyKey, Message, MessageLabel, Status
from tests import factories
from tests.messaging.api.conftest import World
from tests.messaging.api.test_messages import TEXT, error

BATCH = "/api/messages/batch"


def send(world: World, *messages: Any, **headers: str) -> Any:
    return world.api.post(BATCH, {"messages": list(messages)}, **headers)


def test_answers_each_in_its_place(world: World) -> None:
    wrong = [
        {"to": "12", "text": "a"},
        {"to": "+5511999990000"},
        TEXT | {"colour": "red"},
        {"to": 7, "text": {}},
    ]
    answer = send(world, TEXT, *wrong, TEXT)

    body = answer.json()
    assert (answer.status_code, body["accepted"], body["refused"]) == (200, 2, 4)
    assert [result["status"] for result in body["results"]] == [202, 400, 400, 400, 400, 202]
    assert [set((result["error"] or {}).get("fields", ())) for result in body["results"][1:5]] == [
        {"to"},
        {"text"},
        {"colour"},
        {"to", "text"},
    ]
    ids = [result["message"]["id"] for result in body["results"] if result["message"]]
    assert set(ids) == set(Message.objects.values_list("pk", flat=True))
    assert world.api.get(f"/api/messages/{ids[0]}").status_code == 200


def test_takes_a_thousand_and_no_more(world: World) -> None:
    assert send(world, *[TEXT] * 1000).json()["accepted"] == 1000
    refused = send(world, *[TEXT] * 1001)
    assert (refused.status_code, set(error(refused)["fields"])) == (400, {"messages"})
    assert Message.objects.count() == 1000


@pytest.mark.parametrize(
    "body", [{}, {"messages": []}, {"messages": "a"}, {"messages": [1]}, {"messages": [[]]}]
)
def test_names_what_is_wrong_with_the_whole(world: World, body: Any) -> None:
    answer = world.api.post(BATCH, body)
    assert (answer.status_code, set(error(answer)["fields"])) == (400, {"messages"})


def test_gives_the_same_messages_again(world: World) -> None:
    first = send(world, TEXT, {"to": "12", "text": "a"}, TEXT, Idempotency_Key="b-1").json()
    second = send(world, TEXT, TEXT, TEXT | {"text": "other"}, Idempotency_Key="b-1").json()

    assert [result["replayed"] for result in second["results"]] == [True, False, False]
    assert [result["status"] for result in second["results"]] == [202, 202, 422]
    assert second["results"][0]["message"]["id"] == first["results"][0]["message"]["id"]
    assert Message.objects.count() == IdempotencyKey.objects.count() == 3


def test_keeps_the_keys_of_batches_and_single_messages_apart(world: World) -> None:
    send(world, TEXT, Idempotency_Key="k")
    assert "Idempotent-Replayed" not in world.api.post("/api/messages", TEXT, Idempotency_Key="k").headers


@pytest.mark.parametrize("key", ["", "a b", "é", "x" * 252])
def test_refuses_a_key_that_is_none(world: World, key: str) -> None:
    answer = send(world, TEXT, Idempotency_Key=key)
    assert (answer.status_code, set(error(answer)["fields"])) == (400, {"Idempotency-Key"})
    assert send(world, TEXT, Idempotency_Key="x" * 251).json()["accepted"] == 1


# --- cancel and why ---------------------------------------------------------------------------------------


def test_cancels_what_waits_and_says_what_became_of_the_rest(world: World) -> None:
    waiting = factories.make_message(world.project, world.instance, status=Status.QUEUED)
    sent = factories.make_message(world.project, world.instance, status=Status.SENT)

    answer = world.api.post(f"/api/messages/{waiting.pk}/cancel", {})
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert answer.json()["cancelled_at"]
    refused = world.api.post(f"/api/messages/{sent.pk}/cancel", {})
    assert (refused.status_code, error(refused)["code"], error(refused)["fields"]) == (
        409,
        "not_cancellable",
        {"status": ["sent"]},
    )


def test_says_why_a_message_waits(world: World) -> None:
    waiting = factories.make_message(
        world.project,
        world.instance,
        status=Status.QUEUED,
        deliver_until=timezone.now() + timedelta(hours=1),
    )
    body = world.api.get(f"/api/messages/{waiting.pk}/why").json()
    assert set(body) == {"id", "status", "why", "position", "expected_at", "deliver_until", "attempts"}
    assert (body["status"], body["position"]) == ("queued", 1)
    assert body["why"]


# --- finding ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"reference": "order-1"}, {"a", "b"}),
        ({"reference": "order-2"}, {"c"}),
        ({"reference": "order"}, set()),
        ({"metadata[shop]": "1"}, {"a", "c"}),
        ({"metadata[shop]": "1", "metadata[lang]": "pt"}, {"a"}),
        ({"metadata[shop]": "1", "reference": "order-2"}, {"c"}),
        ({"metadata[nothing]": "1"}, set()),
        ({"metadata[a]b]": ""}, {"b"}),
    ],
)
def test_finds_by_reference_and_metadata(world: World, query: dict[str, str], found: set[str]) -> None:
    made = {
        "a": {"reference": "order-1", "metadata": {"shop": "1", "lang": "pt"}},
        "b": {"reference": "order-1", "metadata": {"a]b": ""}},
        "c": {"reference": "order-2", "metadata": {"shop": "1"}},
        "d": {},
    }
    results = send(world, *[TEXT | fields for fields in made.values()]).json()["results"]
    names = {result["message"]["id"]: name for result, name in zip(results, made, strict=True)}

    listed = world.api.get("/api/messages", **query).json()["messages"]
    assert {names[message["id"]] for message in listed} == found
    assert all(message["reference"] == made[names[message["id"]]].get("reference", "") for message in listed)
    assert MessageLabel.objects.count() == 7


@pytest.mark.parametrize("name", ["metadata[]", "metadata", "metadata[a", "metadata[" + "a" * 41 + "]"])
def test_names_a_filter_that_is_none(world: World, name: str) -> None:
    answer = world.api.get("/api/messages", **{name: "1"})
    assert (answer.status_code, set(error(answer)["fields"])) == (400, {name})
