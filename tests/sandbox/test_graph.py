"""The emulated WhatsApp Cloud API: what it takes, refuses, reports and limits."""

from __future__ import annotations

import hashlib
import hmac

import httpx
import pytest

from tests.sandbox.emulator import Emulator, Receiver, eventually
from tests.sandbox.graph import PERSON, SECRET, GraphAccount, messages, statuses, text


@pytest.fixture
def account(sandbox: Emulator, receiver: Receiver) -> GraphAccount:
    """A number that Ana has just written to."""
    account = GraphAccount(sandbox, webhook=f"{receiver.url}/meta")
    account.do("inbound", **{"from": PERSON, "text": "oi"})
    eventually(lambda: receiver.received)
    receiver.received.clear()
    return account


def error(answer: object) -> tuple[int, int, int | None]:
    body = answer.json()["error"]  # type: ignore[attr-defined]
    return answer.status_code, body["code"], body.get("error_subcode")  # type: ignore[attr-defined]


def test_takes_a_message_over_and_reports_what_became_of_it(
    account: GraphAccount, receiver: Receiver
) -> None:
    answer = account.send(**text("olá", biz_opaque_callback_data="m-1"))

    assert answer.status_code == 200
    id_ = answer.json()["messages"][0]["id"]
    assert answer.json()["contacts"] == [{"input": PERSON, "wa_id": PERSON}]
    assert answer.json()["messages"][0]["message_status"] == "accepted"
    assert [(e["key_id"], e["text"], e["instance"]) for e in account.emulator.ledger()] == [
        (id_, "olá", "111")
    ]
    eventually(lambda: {s["status"] for s in statuses(receiver)} == {"sent", "delivered", "read"})
    assert {s["biz_opaque_callback_data"] for s in statuses(receiver)} == {"m-1"}
    assert {s["pricing"]["type"] for s in statuses(receiver)} == {"free_customer_service"}
    assert account.emulator.control.get("/told").json()["entries"]


@pytest.mark.parametrize("version", ["v17.0", "v25.0", "v31.2"])
def test_answers_under_any_version(account: GraphAccount, version: str) -> None:
    assert account.api.get(f"{account.emulator.url}/{version}/111").json()["id"] == "111"


def test_knows_a_brazilian_by_the_number_without_its_ninth_digit(account: GraphAccount) -> None:
    answer = account.send("+55 (31) 98765-4321", **text("oi"))

    assert answer.json()["contacts"] == [{"input": "+55 (31) 98765-4321", "wa_id": "553187654321"}]


def test_refuses_without_a_token_and_of_strange_objects(account: GraphAccount) -> None:
    anonymous = account.api.get("/111", headers={"Authorization": ""})

    assert error(anonymous) == (401, 190, 463)
    assert error(account.api.get("/999")) == (400, 100, 33)
    assert error(account.api.post("/999/messages", json={})) == (400, 100, 33)
    assert error(account.api.get("/111/nothing")) == (400, 100, 33)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"type": "text"}, 131008),
        ({"type": "text", "text": {"body": "x" * 4097}}, 100),
        ({"type": "hologram", "hologram": {}}, 131009),
        ({"type": "image", "image": {}}, 100),
        ({"type": "audio", "audio": {"link": "https://a.example", "caption": "no"}}, 100),
        ({"type": "location", "location": {"latitude": "1", "longitude": 2}}, 131009),
        (
            {"type": "interactive", "interactive": {"type": "button", "body": {"text": "a"}, "action": {}}},
            131009,
        ),
        ({"type": "template", "template": {"name": "nope", "language": {"code": "en"}}}, 132001),
        ({"type": "image", "image": {"id": "999"}}, 100),
        ({"type": "text", "text": {"body": "a"}, "colour": "red"}, 100),
        ({"type": "text", "text": {"body": "a"}, "biz_opaque_callback_data": "x" * 513}, 131009),
    ],
)
def test_refuses_what_meta_would(account: GraphAccount, body: dict, code: int) -> None:
    answer = account.send(**body)

    assert (answer.status_code >= 400, answer.json()["error"]["code"]) == (True, code)
    assert account.emulator.ledger() == []


def test_fails_a_text_after_24_hours_when_it_was_accepted(account: GraphAccount, receiver: Receiver) -> None:
    account.advance(24 * 3600 + 1)
    assert account.send(**text("tarde")).status_code == 200
    eventually(lambda: statuses(receiver))

    (status,) = statuses(receiver)
    assert (status["status"], status["errors"][0]["code"]) == ("failed", 131047)
    account.change(window="sync")
    assert error(account.send(**text("tarde"))) == (400, 131047, None)


def test_holds_to_both_rate_limits_on_its_own_clock(account: GraphAccount) -> None:
    codes = [account.send(**text("bolha")).json().get("error", {}).get("code") for _ in range(46)]
    assert (codes[:45], codes[45]) == ([None] * 45, 131056)
    account.advance(6)
    assert account.send(**text("depois")).status_code == 200

    account.change(messages_per_second=1, window="off")
    others = (account.send(f"551198765{n:04}", **text("a")) for n in range(20))
    refused = next(answer for answer in others if answer.status_code == 429)
    assert error(refused)[1] == 130429
    assert refused.headers["Retry-After"] == "1"


def test_signs_the_escaped_bytes_that_it_posts(account: GraphAccount, receiver: Receiver) -> None:
    account.do("inbound", **{"from": PERSON, "text": "é @ / <ção>"})
    eventually(lambda: messages(receiver))
    received = receiver.received[-1]

    assert rb"\u00e9 @ \/" in received.raw
    expected = hmac.new(SECRET.encode(), received.raw, hashlib.sha256).hexdigest()
    assert received.headers["X-Hub-Signature-256"] == f"sha256={expected}"


@pytest.mark.parametrize(("bsuid", "keys"), [("both", {"from", "from_user_id"}), ("only", {"from_user_id"})])
def test_names_people_by_number_or_by_their_business_scoped_id(
    account: GraphAccount, receiver: Receiver, bsuid: str, keys: set[str]
) -> None:
    account.change(bsuid=bsuid)
    account.do("inbound", **{"from": PERSON, "text": "oi"})
    eventually(lambda: messages(receiver))

    (message,) = messages(receiver)
    assert message.keys() & {"from", "from_user_id"} == keys
    reply = {"messaging_product": "whatsapp", "recipient": message["from_user_id"], **text("olá")}
    assert account.api.post("/111/messages", json=reply).status_code == 200


def test_posts_a_batch_over_several_numbers_at_once(sandbox: Emulator, receiver: Receiver) -> None:
    accounts = [GraphAccount(sandbox, id_, webhook=receiver.url, batch=0.1) for id_ in ("1", "2")]
    for account in accounts:
        account.do("inbound", **{"from": PERSON, "text": "oi", "copies": 2})
    eventually(lambda: messages(receiver))

    assert len(receiver.received) == 1
    numbers = {
        v["metadata"]["phone_number_id"]
        for v in (c["value"] for e in receiver.received[0].body["entry"] for c in e["changes"])
    }
    assert numbers == {"1", "2"}
    assert len(messages(receiver)) == 4


def test_repeats_a_webhook_that_was_not_taken(account: GraphAccount, receiver: Receiver) -> None:
    receiver.script = [500, 404]
    account.do("inbound", **{"from": PERSON, "text": "de novo"})

    eventually(lambda: len(receiver.received) == 3)
    assert len({received.raw for received in receiver.received}) == 1


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"kind": "failed_status", "code": 131049}, {"failed"}),
        ({"kind": "failed_status", "code": 131026, "then": "delivered"}, {"failed", "delivered"}),
        ({"kind": "read_only"}, {"sent", "read"}),
        ({"kind": "skip_server_ack"}, {"delivered", "read"}),
    ],
)
def test_reports_what_a_test_asks_for(
    account: GraphAccount, receiver: Receiver, fault: dict, expected: set[str]
) -> None:
    account.emulator.arm(**fault)
    account.send(**text("a"))

    eventually(lambda: {s["status"] for s in statuses(receiver)} == expected)


def test_reports_before_it_answers(account: GraphAccount, receiver: Receiver) -> None:
    account.emulator.arm("webhooks_before_answer")
    account.send(**text("a"))

    assert [s["status"] for s in statuses(receiver)][:1] == ["sent"]


def test_answers_with_a_named_error_or_with_none_at_all(account: GraphAccount) -> None:
    account.emulator.arm("graph_error", code=131016, times=1)
    assert error(account.send(**text("a"))) == (500, 131016, None)
    account.emulator.arm("graph_error", status=502, accepted=True, times=1)
    assert account.send(**text("b")).status_code == 502
    account.emulator.arm("answer_lost", times=1)
    with pytest.raises(httpx.TransportError):
        account.send(**text("c"))

    assert [entry["text"] for entry in account.emulator.ledger()] == ["b", "c"]


def test_checks_templates_against_the_account(account: GraphAccount, receiver: Receiver) -> None:
    body = {"type": "BODY", "text": "Olá {{1}}, pedido {{2}}"}
    account.do("template", name="pedido", language="pt_BR", components=[body], category="UTILITY")
    listed = account.api.get("/waba-1/message_templates?limit=1").json()
    assert [(t["name"], t["status"]) for t in listed["data"]] == [("pedido", "APPROVED")]

    def send(*texts: str) -> object:
        parameters = [{"type": "text", "text": each} for each in texts]
        components = [{"type": "body", "parameters": parameters}]
        template = {"name": "pedido", "language": {"code": "pt_BR"}, "components": components}
        return account.send(type="template", template=template)

    assert error(send("Ana"))[1] == 132000
    account.advance(30 * 3600)
    assert send("Ana", "42").status_code == 200  # type: ignore[attr-defined]
    eventually(lambda: statuses(receiver))
    assert statuses(receiver)[0]["pricing"]["category"] == "utility"


def test_keeps_files_for_as_long_as_meta_does(account: GraphAccount) -> None:
    data = bytes(range(256)) * 4 + b"\r\n--x\r\n\n"
    files = {"file": ("a.png", data, "image/png")}
    form = {"messaging_product": "whatsapp", "type": "image/png"}
    id_ = account.api.post("/111/media", data=form, files=files).json()["id"]
    described = account.api.get(f"/{id_}").json()

    assert id_.isdecimal()
    assert described["sha256"] == hashlib.sha256(data).hexdigest()
    assert account.api.get(described["url"]).content == data
    assert account.api.get(described["url"], headers={"Authorization": ""}).status_code == 401
    account.advance(301)
    assert account.api.get(described["url"]).status_code == 404
    account.advance(30 * 86_400)
    assert error(account.api.get(f"/{id_}")) == (400, 100, 33)


def test_asks_a_callback_before_it_subscribes_it(account: GraphAccount) -> None:
    body = {"override_callback_uri": f"{account.emulator.url}/_media/none", "verify_token": "v"}

    answer = account.api.post("/waba-1/subscribed_apps", json=body)

    assert error(answer) == (400, 100, 2200)
