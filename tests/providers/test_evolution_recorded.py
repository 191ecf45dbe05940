"""Every recorded exchange with a real server that one of our verbs makes, and what the verb makes of its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from instances.providers.base import (
    Account,
    Answer,
    Call,
    HookConfig,
    OutboundMessage,
    Pairing,
    ProviderError,
    Receipt,
)
from instances.providers.evolution import Evolution
from tests.providers.recordings import EXCHANGES

EVOLUTION = Evolution()
ACCOUNT = Account(name="a1", base_url="http://evolution.test", api_key="key")
MESSAGE = OutboundMessage(id="m1", to="+5511987654321", text="hi")
NOW = datetime(2026, 11, 29, 15, 25, 58, tzinfo=UTC)
HOOK = HookConfig(url="http://pilot.test/h/a1", events=["MESSAGES_UPDATE"])
FOUND = OutboundMessage(id="m1", to="+5511987654321", text="", provider_message_id="3EB02CB7619F8103F8F6BB")

VERBS: Mapping[tuple[str, str], Callable[[], Call[Any]]] = {
    ("POST", "message/sendText"): lambda: EVOLUTION.send(ACCOUNT, MESSAGE),
    ("POST", "message/sendButtons"): lambda: EVOLUTION.send(ACCOUNT, MESSAGE),
    ("POST", "chat/sendPresence"): lambda: EVOLUTION.typing(ACCOUNT, MESSAGE, milliseconds=1),
    ("POST", "chat/findMessages"): lambda: EVOLUTION.find(ACCOUNT, FOUND, now=NOW),
    ("POST", "instance/create"): lambda: EVOLUTION.create(ACCOUNT, hook=HOOK),
    ("GET", "instance/connect"): lambda: EVOLUTION.connect(ACCOUNT),
    ("POST", "instance/restart"): lambda: EVOLUTION.restart(ACCOUNT),
    ("PUT", "instance/restart"): lambda: EVOLUTION.restart(ACCOUNT),
    ("DELETE", "instance/logout"): lambda: EVOLUTION.logout(ACCOUNT),
    ("DELETE", "instance/delete"): lambda: EVOLUTION.delete(ACCOUNT),
    ("GET", "instance/connectionState"): lambda: EVOLUTION.state(ACCOUNT),
    ("POST", "instance/setPresence"): lambda: EVOLUTION.presence(ACCOUNT),
    ("POST", "webhook/set"): lambda: EVOLUTION.set_hook(ACCOUNT, HOOK),
    ("GET", "webhook/find"): lambda: EVOLUTION.get_hook(ACCOUNT),
}


def verb_of(line: Mapping[str, Any]) -> Callable[[], Call[Any]] | None:
    path = line["path"].partition("?")[0].strip("/")
    return VERBS.get((line["method"], "/".join(path.split("/")[:2])))


def meaning(line: Mapping[str, Any]) -> str:
    verb = verb_of(line)
    assert verb is not None
    try:
        return _show(verb().read(Answer(line["status"], line["response"])))
    except ProviderError as error:
        return f"{error.outcome}: {error.code}"


def _show(result: Any) -> str:
    if isinstance(result, Receipt):
        return f"{result.status} {result.provider_message_id} to {result.recipient_id}"
    if isinstance(result, Mapping):
        return f"created {result.get('instanceName')}" if result else "exists"
    if isinstance(result, Pairing):
        return "already open" if result.already_open else f"code {result.qr_code or 'none yet'}"
    if isinstance(result, HookConfig):
        return f"{len(result.events)} events to {result.url}"
    if result is None:
        return "ok"
    return str(result.status or result.finding) if hasattr(result, "finding") else str(result)


# What an answer means: the lines of http-2.3.7.jsonl, from 1. Lines that are receipts have a test of their own.
MEANINGS: Mapping[str, list[int]] = {
    "instance_down: instance_removed": [6, 7, 8, 74, 126, 128, 130, 131, 156],
    "rejected: rejected": [
        9,
        10,
        11,
        13,
        19,
        20,
        32,
        33,
        37,
        38,
        39,
        40,
        41,
        42,
        43,
        45,
        46,
        47,
        48,
        54,
        56,
        65,
        68,
        69,
        86,
        94,
        158,
        159,
    ],
    "created ": [12],
    "instance_down: provider_misconfigured": [14, 24, 29, 75, 116],
    "created a1": [15],
    "exists": [16, 17],
    "created a2": [18],
    "closed": [21, 22, 23, 132, 136, 138, 139, 148],
    "instance_down: instance_disconnected": [28, 31, 36, 55, 89, 91, 142, 143, 144],
    "ok": [30, 35, 66, 70, 71, 72, 95, 96, 104, 106, 108, 109, 123, 124, 145, 146, 149, 153, 154, 155],
    "31 events to http://pilot.test/h/a1": [34],
    "unknown: ambiguous_answer": [44, 67, 73, 92],
    "still_unknown": [60, 61, 98, 99, 152],
    "open": [77, 103, 105, 107, 117, 125, 127, 129, 161, 163],
    "already open": [78],
    "rejected: not_on_whatsapp": [84, 85],
    "read": [97],
    "created b1": [110],
    "created b2": [115],
    "created c1": [119],
    "created c4": [120],
    "code none yet": [135, 140, 141],
    "connecting": [137],
    "created b3": [147],
    "created d1": [150, 157],
    "created biz2": [160],
    "created evo": [162],
}
LINES = [(number, meaning) for meaning, numbers in MEANINGS.items() for number in numbers]


def ours() -> dict[int, Mapping[str, Any]]:
    return {number: line for number, line in enumerate(EXCHANGES, start=1) if verb_of(line)}


def is_receipt(line: Mapping[str, Any]) -> bool:
    return line["status"] == 201 and "/message/" in line["path"]


@pytest.mark.parametrize(("number", "expected"), LINES)
def test_reads_a_recorded_answer(number: int, expected: str) -> None:
    assert meaning(ours()[number]) == expected


@pytest.mark.parametrize("line", [line for line in ours().values() if is_receipt(line)])
def test_reads_a_recorded_receipt(line: Mapping[str, Any]) -> None:
    key = line["response"]["key"]

    assert meaning(line) == f"submitted {key['id']} to {key['remoteJid']}"


def test_leaves_no_recorded_answer_out() -> None:
    receipts = {number for number, line in ours().items() if is_receipt(line)}

    assert {number for number, _meaning in LINES} | receipts == set(ours())
    assert len(receipts) == 15
