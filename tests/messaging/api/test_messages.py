"""Sending and reading messages over the API."""

from __future__ import annotations

from messaging.models import Message
from tests.messaging.api.conftest import World

BODY = {"to": "(11) 99999-0000", "template": "pedido_enviado", "variables": {"nome": "Ana"}}


def test_accepts_a_message(world: World) -> None:
    answer = world.api.post("/api/messages", BODY)

    assert answer.status_code == 202
    message = Message.objects.get()
    assert message.content == {"text": "Olá Ana, seu pedido saiu."}
    assert answer["Location"] == f"/api/messages/{message.pk}"
