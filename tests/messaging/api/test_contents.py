"""Sending something that is no text."""

from __future__ import annotations

import pytest

from messaging.models import Message
from tests.messaging.api.conftest import World

TO = "+5511999990000"
LOCATION = {"type": "location", "latitude": -23.5, "longitude": -46.6}


@pytest.mark.parametrize(
    ("extra", "fields"),
    [
        ({"content": {"type": "location", "latitude": 91, "longitude": 0}}, {"content": {"latitude"}}),
        ({"content": {"type": "hologram"}}, {"content": {"type"}}),
        ({"content": "a"}, {"content": {"buttons"}}),
        ({"content": LOCATION, "text": "a"}, {"text": None}),
        ({"content": LOCATION, "template": "pedido_enviado"}, {"content": None}),
        ({"content": LOCATION, "variables": {}}, {"variables": None}),
    ],
)
def test_names_what_is_wrong_with_a_content(world: World, extra: dict, fields: dict) -> None:
    answer = world.api.post("/api/messages", {"to": TO} | extra)

    assert answer.status_code == 400
    found = answer.json()["error"]["fields"]
    assert found.keys() == fields.keys()
    assert all(parts is None or found[name].keys() == parts for name, parts in fields.items())
    assert not Message.objects.exists()


def test_refuses_a_kind_that_the_provider_does_not_have(world: World) -> None:
    answer = world.api.post("/api/messages", {"to": TO, "content": LOCATION})

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "unsupported_content"
    assert not Message.objects.exists()


def test_takes_a_text_as_a_content_too(world: World) -> None:
    answer = world.api.post("/api/messages", {"to": TO, "content": {"type": "text", "text": "Olá"}})

    assert answer.status_code == 202
    assert Message.objects.get().content == {"type": "text", "text": "Olá"}
