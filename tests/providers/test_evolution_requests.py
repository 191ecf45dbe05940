"""What Evolution is asked, compared with requests that a real server accepted."""

from __future__ import annotations

from typing import Any

import pytest

from instances.providers.base import Account, Answer, Button, HookConfig, OutboundMessage, Pairing
from instances.providers.evolution import Evolution
from tests.providers.recordings import EXCHANGES

EVOLUTION = Evolution(send_timeout=12)
ACCOUNT = Account(name="a1", base_url="http://evolution.test/", api_key="key")
NATIVE = Account(name="a1", base_url="http://evolution.test", api_key="key", buttons_as_text=False)
PREVIEWING = Account(name="a1", base_url="http://evolution.test", api_key="key", link_preview=True)
YES, NO = Button("reply", "Sim", "yes"), Button("reply", "Nao", "no")
SITE, PHONE = Button("url", "Abrir", "https://x.com"), Button("call", "Ligar", "5511999999999")
CODE = Button("copy", "Copiar", "ABC")


def message(**fields: Any) -> OutboundMessage:
    return OutboundMessage(**{"id": "m1", "to": "+5511987654321", "text": "Olá", **fields})


def recorded(number: int) -> dict[str, Any]:
    """The body of a line of http-2.3.7.jsonl, from 1."""
    return EXCHANGES[number - 1]["body"]


# --- sending ---


def test_sends_text() -> None:
    call = EVOLUTION.send(ACCOUNT, message())

    assert call.sends
    assert (call.request.method, call.request.url) == ("POST", "http://evolution.test/message/sendText/a1")
    assert (call.request.headers, call.request.timeout) == ({"apikey": "key"}, 12)
    assert call.request.json == {"number": "5511987654321", "text": "Olá", "linkPreview": False}


def test_sends_to_the_jid_that_whatsapp_gave() -> None:
    jid = "554788887777@s.whatsapp.net"

    assert EVOLUTION.send(ACCOUNT, message(recipient_id=jid)).request.json["number"] == jid
    assert EVOLUTION.send(ACCOUNT, message(recipient_id="5511")).request.json["number"] == "5511987654321"


@pytest.mark.parametrize(
    ("account", "text", "preview"),
    [
        (PREVIEWING, "veja https://x.com/a", True),
        (PREVIEWING, "HTTP://X.COM", True),
        (PREVIEWING, "sem endereço", False),
        (ACCOUNT, "veja https://x.com/a", False),
    ],
)
def test_previews_only_links_and_only_where_wanted(account: Account, text: str, preview: bool) -> None:
    assert EVOLUTION.send(account, message(text=text)).request.json["linkPreview"] is preview


def test_quotes_the_name_of_the_instance() -> None:
    account = Account(name="a/b?instanceName=c", base_url="http://evolution.test", api_key="key")

    url = EVOLUTION.send(account, message()).request.url
    assert url == "http://evolution.test/message/sendText/a%2Fb%3FinstanceName%3Dc"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "Olá"),
        ({"title": "Pedido 10", "footer": "Loja"}, "*Pedido 10*\n\nOlá\n\n_Loja_"),
        ({"buttons": [YES, NO]}, "Olá\n\n1 – Sim\n2 – Nao"),
        (
            {"buttons": [SITE, YES, PHONE, NO, CODE], "footer": "Loja"},
            "Olá\n\n1 – Sim\n2 – Nao\nAbrir: https://x.com\nLigar: 5511999999999\nCopiar: ABC\n\n_Loja_",
        ),
    ],
)
def test_writes_everything_as_text(fields: dict[str, Any], text: str) -> None:
    call = EVOLUTION.send(ACCOUNT, message(**fields))

    assert call.request.url.endswith("/message/sendText/a1")
    assert call.request.json["text"] == text
    assert EVOLUTION.wire_text(ACCOUNT, message(**fields)) == text


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (82, {"title": "Confirma?", "text": "Pedido 10", "footer": "Loja", "buttons": [YES, NO]}),
        (113, {"title": "T", "text": "D", "footer": "F", "buttons": [SITE, PHONE, CODE]}),
    ],
)
def test_sends_real_buttons_as_a_real_server_took_them(line: int, fields: dict[str, Any]) -> None:
    call = EVOLUTION.send(NATIVE, message(**fields))

    assert call.request.url == "http://evolution.test/message/sendButtons/a1"
    assert call.request.json == recorded(line)


@pytest.mark.parametrize(
    ("text", "title", "rest"),
    [
        ("Confirma?", "Confirma?", {}),
        ("Confirma?\nPedido 10\nHoje", "Confirma?", {"description": "Pedido 10\nHoje"}),
    ],
)
def test_never_sends_buttons_without_a_title(text: str, title: str, rest: dict[str, str]) -> None:
    body = EVOLUTION.send(NATIVE, message(text=text, buttons=[YES])).request.json

    button = {"type": "reply", "displayText": "Sim", "id": "yes"}
    assert body == {"number": "5511987654321", "title": title, **rest, "buttons": [button]}


@pytest.mark.parametrize("buttons", [[YES, SITE], [YES, NO, YES, NO]])
def test_writes_buttons_that_evolution_would_refuse_together_as_text(buttons: list[Button]) -> None:
    assert EVOLUTION.send(NATIVE, message(buttons=buttons)).request.url.endswith("/message/sendText/a1")


def test_shows_typing_for_as_long_as_asked() -> None:
    request = EVOLUTION.typing(ACCOUNT, message(), milliseconds=1200).request

    assert request.url == "http://evolution.test/chat/sendPresence/a1"
    assert request.json == {"number": "5511987654321", "presence": "composing", "delay": 1200}
    assert request.timeout == 6.2


# --- the instance ---


def test_creates_with_the_webhook() -> None:
    hook = HookConfig("http://pilot.test/h/a1", ["SEND_MESSAGE"], {"X-Secret": "s"})
    request = EVOLUTION.create(ACCOUNT, hook=hook).request

    assert (request.method, request.url) == ("POST", "http://evolution.test/instance/create")
    assert request.json == {
        "instanceName": "a1",
        "integration": "WHATSAPP-BAILEYS",
        "qrcode": False,
        "groupsIgnore": True,
        "webhook": {
            "enabled": True,
            "url": "http://pilot.test/h/a1",
            "events": ["SEND_MESSAGE"],
            "headers": {"X-Secret": "s"},
            "byEvents": False,
            "base64": False,
        },
    }


def test_turns_the_webhook_off_as_a_real_server_took_it() -> None:
    request = EVOLUTION.set_hook(ACCOUNT, None).request

    assert (request.method, request.url) == ("POST", "http://evolution.test/webhook/set/a1")
    assert request.json == recorded(70)


def test_sets_the_webhook_nested() -> None:
    request = EVOLUTION.set_hook(ACCOUNT, HookConfig("http://pilot.test/h/a1", ["SEND_MESSAGE"])).request

    assert request.json["webhook"]["enabled"] is True
    assert request.json["webhook"]["events"] == ["SEND_MESSAGE"]


def test_subscribes_to_nothing_it_does_not_read() -> None:
    read = {"CONNECTION_UPDATE", "LOGOUT_INSTANCE", "MESSAGES_UPDATE", "MESSAGES_UPSERT"}
    read |= {"QRCODE_UPDATED", "REMOVE_INSTANCE", "SEND_MESSAGE", "STATUS_INSTANCE"}

    assert set(EVOLUTION.hook_events) == read
    assert set(EVOLUTION.hook_events) <= set(EXCHANGES[33]["response"]["events"])


@pytest.mark.parametrize(
    ("verb", "method", "path"),
    [
        ("restart", "POST", "instance/restart"),
        ("logout", "DELETE", "instance/logout"),
        ("delete", "DELETE", "instance/delete"),
        ("state", "GET", "instance/connectionState"),
        ("connect", "GET", "instance/connect"),
        ("get_hook", "GET", "webhook/find"),
    ],
)
def test_manages_by_the_documented_routes(verb: str, method: str, path: str) -> None:
    call = getattr(EVOLUTION, verb)(ACCOUNT)

    assert (call.request.method, call.request.url) == (method, f"http://evolution.test/{path}/a1")
    assert not call.sends
    assert call.request.json is None


def test_asks_for_a_pairing_code_by_number() -> None:
    url = EVOLUTION.connect(ACCOUNT, number="+5511987654321").request.url

    assert url == "http://evolution.test/instance/connect/a1?number=5511987654321"


def test_reads_a_code_to_scan_and_one_to_type() -> None:
    body = {"pairingCode": "ABCD1234", "code": "2@x", "base64": "data:", "count": 3}

    assert EVOLUTION.connect(ACCOUNT).read(Answer(200, body)) == Pairing("2@x", "ABCD1234", 3)


def test_reads_a_restart_in_mid_connection() -> None:
    assert EVOLUTION.restart(ACCOUNT).read(Answer(200, {"code": "2@x", "count": 1})) == "connecting"


def test_reads_an_instance_that_is_not_loaded_as_closed() -> None:
    assert EVOLUTION.state(ACCOUNT).read(Answer(200, {"instance": {"instanceName": "a1"}})) == "closed"


def test_reads_a_webhook_that_is_off_as_none() -> None:
    assert EVOLUTION.get_hook(ACCOUNT).read(Answer(200, {"enabled": False, "url": "http://x"})) is None
    assert EVOLUTION.get_hook(ACCOUNT).read(Answer(200, None)) is None
