"""From the number asked to the JID that is sent to, and who is there."""

from __future__ import annotations

import pytest

from sandbox.numbers import to_jid
from tests.sandbox.emulator import Emulator


@pytest.mark.parametrize(
    ("number", "jid"),
    [
        ("5511987654321", "5511987654321@s.whatsapp.net"),  # São Paulo keeps the ninth digit
        ("5530987654321", "5530987654321@s.whatsapp.net"),  # the last area code that does
        ("5531987654321", "553187654321@s.whatsapp.net"),  # the first that loses it
        ("5547988887777", "554788887777@s.whatsapp.net"),
        ("5547977777777", "554777777777@s.whatsapp.net"),
        ("5547968887777", "5547968887777@s.whatsapp.net"),  # not a mobile: first of eight below 7
        ("+55 (47) 98888-7777", "554788887777@s.whatsapp.net"),
        ("554788887777", "554788887777@s.whatsapp.net"),  # 12 digits are left alone
        ("551140041234", "551140041234@s.whatsapp.net"),
        ("5215512345678", "525512345678@s.whatsapp.net"),  # Mexico, 13 digits
        ("525512345678", "525512345678@s.whatsapp.net"),
        ("5491123456789", "541123456789@s.whatsapp.net"),  # Argentina, 13 digits
        ("541123456789", "541123456789@s.whatsapp.net"),
        ("351912345678", "351912345678@s.whatsapp.net"),
        ("120363000000000000", "120363000000000000@g.us"),  # 18 digits
        ("12036300000000000", "12036300000000000@s.whatsapp.net"),  # 17
        ("5511987654321-1612345678", "5511987654321-1612345678@g.us"),  # a group of the old form
        ("5547988887777@s.whatsapp.net", "5547988887777@s.whatsapp.net"),  # a JID is taken as it is
        ("5547988887777:12@s.whatsapp.net", "5547988887777@s.whatsapp.net"),  # save its device
        ("123456789012345@lid", "123456789012345@lid"),
        ("120363000000000000@g.us", "120363000000000000@g.us"),
        ("status@broadcast", "status@broadcast"),
    ],
)
def test_turns_a_number_into_its_jid(number: str, jid: str) -> None:
    assert to_jid(number) == jid


def test_sends_to_the_jid_whatsapp_answers_with(sandbox: Emulator) -> None:
    sandbox.create("a1")
    sandbox.know("5511987654321", jid="551187654321@s.whatsapp.net")

    assert sandbox.send("a1").json()["key"]["remoteJid"] == "551187654321@s.whatsapp.net"
    assert sandbox.ledger()[0]["number"] == "5511987654321"


def test_refuses_a_number_that_left_whatsapp(sandbox: Emulator) -> None:
    sandbox.create("a1")
    assert sandbox.send("a1").status_code == 201

    sandbox.know("5511987654321", exists=False)
    answer = sandbox.send("a1")

    assert answer.status_code == 400
    assert answer.json()["response"]["message"][0]["exists"] is False


def test_still_finds_a_cached_number_without_a_socket(sandbox: Emulator) -> None:
    sandbox.create("a1")
    sandbox.send("a1", number="5511987654321")
    sandbox.do("a1", "state", state="close")

    known = sandbox.api.post("/chat/whatsappNumbers/a1", json={"numbers": ["5511987654321"]})
    unknown = sandbox.api.post("/chat/whatsappNumbers/a1", json={"numbers": ["5511900000000"]})

    assert known.json()[0]["exists"] is True
    assert (unknown.status_code, unknown.json()["isBoom"]) == (400, True)


def test_addresses_receipts_and_inbound_messages_by_lid(sandbox: Emulator) -> None:
    sandbox.create("a1")
    sandbox.know("5511987654321", lid=True)

    with_phone = sandbox.do("a1", "inbound", **{"from": "5511987654321"}, text="oi")["key"]
    bare = sandbox.do("a1", "inbound", **{"from": "5511987654321"}, text="oi", lid="bare")["key"]

    assert with_phone["remoteJid"].endswith("@lid")
    assert with_phone["remoteJidAlt"] == "5511987654321@s.whatsapp.net"
    assert bare["remoteJid"] == with_phone["remoteJid"]
    assert "remoteJidAlt" not in bare
