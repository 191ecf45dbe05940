"""pywa, a Cloud API client that we did not write, speaks to the emulator and reads its webhooks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pywa import WhatsApp
from pywa.errors import ReEngagementMessage, TooManyMessages
from pywa.types import Button, Message, MessageStatus, MessageStatusType, Section, SectionList, SectionRow

from tests.sandbox.emulator import Emulator, Receiver, eventually
from tests.sandbox.graph import PERSON, SECRET, GraphAccount, messages, statuses


@pytest.fixture
def account(sandbox: Emulator, receiver: Receiver) -> GraphAccount:
    return GraphAccount(sandbox, webhook=receiver.url)


@pytest.fixture
def client(account: GraphAccount) -> Iterator[WhatsApp]:
    client = WhatsApp(
        phone_id="111",
        token=account.token,
        waba_id="waba-1",
        server=None,
        verify_token="v",
        app_secret=SECRET,
        filter_updates=False,
    )
    client.api._session.base_url = f"{account.emulator.url}/v25.0"
    yield client
    client.api._session.close()


def test_sends_every_kind_that_it_can(account: GraphAccount, client: WhatsApp, receiver: Receiver) -> None:
    account.change(window="off")
    quoted = account.do("inbound", **{"from": PERSON, "text": "oi"})["id"]

    client.send_message(PERSON, "olá", reply_to_message_id=quoted, tracker="m-1")
    client.send_message(PERSON, "?", header="H", footer="F", buttons=[Button("Sim", "y"), Button("Não", "n")])
    rows = [SectionRow(title="9 h", callback_data="m9", description="com Ana")]
    client.send_message(PERSON, "?", buttons=SectionList("Abrir", [Section("Manhã", rows)]))
    client.send_location(PERSON, -23.5, -46.6, name="Loja")
    client.send_reaction(PERSON, "👍", quoted)
    client.send_image(PERSON, "https://loja.example/a.jpg", caption="c")

    kinds = [entry["kind"] for entry in account.emulator.ledger()]
    assert kinds == ["text", "interactive", "interactive", "location", "reaction", "image"]
    client.mark_message_as_read(quoted)
    client.indicate_typing(quoted)
    assert client.get_business_phone_number().verified_name == "Loja"


def test_uploads_and_downloads(account: GraphAccount, client: WhatsApp, tmp_path: Path) -> None:
    uploaded = client.upload_media(b"\x89PNG bytes", mime_type="image/png", filename="a.png")

    address = client.get_media_url(uploaded.id)
    assert address.mime_type == "image/png"
    path = client.download_media(url=address.url, path=tmp_path, filename="b.png")
    assert Path(path).read_bytes() == b"\x89PNG bytes"


def test_tells_the_errors_apart(account: GraphAccount, client: WhatsApp) -> None:
    account.change(window="sync")
    with pytest.raises(ReEngagementMessage):
        client.send_message(PERSON, "tarde")
    account.emulator.arm("graph_error", code=131056, times=1)
    with pytest.raises(TooManyMessages):
        client.send_message(PERSON, "bolha")


def handled(client: WhatsApp, receiver: Receiver) -> list[Any]:
    """What pywa makes of everything that was posted; a payload that it cannot read is silently not handled."""
    seen: list[Any] = []
    client.on_message()(lambda _client, message: seen.append(message))
    client.on_message_status()(lambda _client, status: seen.append(status))
    for received in receiver.received:
        signature = received.headers["X-Hub-Signature-256"]
        assert client.webhook_update_validator(received.raw, signature) is None
        client.webhook_update_handler(received.raw)
    return seen


def test_reads_the_webhooks_of_people_s_messages(
    account: GraphAccount, client: WhatsApp, receiver: Receiver
) -> None:
    account.do("inbound", **{"from": PERSON, "text": "é @ /"})
    account.do("inbound", **{"from": PERSON, "type": "image"})
    account.do(
        "inbound", **{"from": PERSON, "type": "location", "location": {"latitude": 1.5, "longitude": 2}}
    )
    eventually(lambda: len(messages(receiver)) == 3)

    seen = handled(client, receiver)

    assert len(seen) == 3
    assert all(isinstance(message, Message) for message in seen)
    assert {message.text for message in seen if message.text} == {"é @ /"}
    assert [message.from_user.wa_id for message in seen] == [PERSON] * 3


def test_reads_the_webhooks_of_statuses(account: GraphAccount, client: WhatsApp, receiver: Receiver) -> None:
    client.send_message(PERSON, "tarde", tracker="m-1")
    account.change(window="off")
    client.send_message(PERSON, "olá", tracker="m-2")
    eventually(lambda: len(statuses(receiver)) == 4)

    seen = handled(client, receiver)

    assert len(seen) == 4
    assert all(isinstance(status, MessageStatus) for status in seen)
    assert {(status.tracker, status.status) for status in seen} == {
        ("m-1", MessageStatusType.FAILED),
        ("m-2", MessageStatusType.SENT),
        ("m-2", MessageStatusType.DELIVERED),
        ("m-2", MessageStatusType.READ),
    }
    assert {type(status.error) for status in seen if status.error} == {ReEngagementMessage}
