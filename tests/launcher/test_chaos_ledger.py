"""The verdict of a chaos run: each broken promise is planted, and must be found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from launcher.chaos import ledger
from launcher.chaos.ledger import Entry, Promise, Row

UNTIL = 1_000.0
SENT = ("queued", "sending", "submitted", "sent")
PATHS = {
    "queued": ("queued",),
    "sending": ("queued", "sending"),
    "unconfirmed": ("queued", "sending", "unconfirmed"),
    "submitted": SENT[:3],
    "sent": SENT,
    "delivered": (*SENT, "delivered"),
    "read": (*SENT, "delivered", "read"),
    "failed": ("queued", "sending", "failed"),
    "cancelled": ("queued", "cancelled"),
}


def promise(number: int = 1, *ids: str) -> Promise:
    return Promise(number, frozenset(ids or {f"m{number}"}), UNTIL)


def row(status: str = "read", **fields: Any) -> Row:
    history = [(step, 900.0 + index) for index, step in enumerate(fields.pop("path", PATHS.get(status, ())))]
    values = {"number": 1, "id": "m1", "deliver_until": UNTIL, "provider_message_id": "K1", "attempts": 1}
    return Row(status=status, history=history, **values | fields)


def failed(code: str, **fields: Any) -> Row:
    return row("failed", failure_code=code, provider_message_id="", **fields)


def entry(status: str = "READ", *told: str, **fields: Any) -> Entry:
    times = dict.fromkeys(told, 901.0)
    return Entry(**{"number": 1, "key_id": "K1", "asked_at": 950.0, "status": status, "told": times} | fields)


def verdict(*given: Promise | Row | Entry) -> list[tuple[str, str]]:
    """What is found, each as its kind and why."""
    messages = ledger.gather(
        [each for each in given if isinstance(each, Promise)],
        [each for each in given if isinstance(each, Row)],
        [each for each in given if isinstance(each, Entry)],
    )
    return [(finding.kind, finding.why) for finding in ledger.judge(messages)]


ALL = ("PENDING", "SERVER_ACK", "DELIVERY_ACK", "READ")


@pytest.mark.parametrize(
    "given",
    [
        pytest.param((row("read"), entry("READ", *ALL)), id="read"),
        pytest.param((row("submitted"), entry("READ")), id="every receipt was lost"),
        pytest.param((row("read"), entry("READ", "PENDING")), id="found by a look-up"),
        pytest.param(
            (row("submitted", provider_message_id=""), entry("PENDING")), id="went out without an id"
        ),
        pytest.param((failed("expired"),), id="expired"),
        pytest.param((failed("not_on_whatsapp"),), id="never went out"),
        pytest.param((failed("undeliverable"), entry("ERROR", "ERROR")), id="whatsapp refused it"),
        pytest.param((failed("undeliverable"), entry("ERROR")), id="found refused by a look-up"),
        pytest.param((failed("outcome_unknown"),), id="unknown, and did not go out"),
        pytest.param(
            (failed("outcome_unknown"), entry("PENDING")), id="unknown, went out, nobody could know"
        ),
        pytest.param(
            (failed("outcome_unknown"), entry("READ", "SERVER_ACK")),
            id="a receipt does not say of what message",
        ),
        pytest.param(
            (row("read"), entry("READ", *ALL, asked_at=UNTIL + 0.1)), id="on its way at the deadline"
        ),
        pytest.param(
            (row("delivered", path=("queued", "sending", "failed", "delivered")), entry("DELIVERY_ACK")),
            id="late proof beats a guess",
        ),
    ],
)
def test_finds_nothing_wrong_with_a_kept_promise(given: Sequence[Row | Entry]) -> None:
    assert verdict(promise(), *given) == []


@pytest.mark.parametrize("status", ["queued", "sending", "unconfirmed"])
def test_a_message_without_an_end_is_lost(status: str) -> None:
    assert verdict(promise(), row(status)) == [("lost", f"is still {status}")]


def test_a_message_that_is_not_there_is_lost_even_if_it_went_out() -> None:
    assert ("lost", "accepted as m1, and there is no such message") in verdict(promise())
    assert ("lost", "accepted as m1, and there is no such message") in verdict(promise(), entry())


def test_a_message_that_nobody_was_promised_may_not_be_forgotten_either() -> None:
    assert verdict(row("queued")) == [("lost", "is still queued")]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ((promise(), row(), entry(), entry(key_id="K2")), "went out 2 times"),
        ((promise(), row(), row(id="m2"), entry()), "is there 2 times"),
        ((promise(1, "m1", "m2"), row(), row(id="m2"), entry()), "one key was answered with 2 messages"),
    ],
)
def test_what_is_there_twice_is_a_duplicate(given: Sequence[Promise | Row | Entry], why: str) -> None:
    assert ("duplicates", why) in verdict(*given)


@pytest.mark.parametrize("promises", [[promise()], []])
def test_what_went_out_after_its_deadline_is_late(promises: list[Promise]) -> None:
    late = entry("READ", *ALL, asked_at=UNTIL + 0.3)

    assert verdict(*promises, row(), late) == [("late", "went out 0.300 s after its deadline")]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ((row("sent"),), "is sent, and did not go out"),
        ((row("cancelled"),), "is cancelled, and did not go out"),
        ((row("sent"), entry("READ", *ALL)), f"is sent, and was told {' '.join(ALL)}"),
        ((row("read"), entry("DELIVERY_ACK")), "is read, and the furthest receipt was DELIVERY_ACK"),
        ((row("delivered"), entry("ERROR")), "is delivered, and the furthest receipt was ERROR"),
        ((row("sent"), entry("ERROR", "ERROR")), "is sent, and was told that it could not be delivered"),
        ((row("read", provider_message_id="K9"), entry()), "goes by K9, and went out as K1"),
        ((failed("expired"), entry()), "failed as expired, and went out"),
        ((failed("rejected"), entry()), "failed as rejected, and went out"),
        ((failed("undeliverable"),), "failed as undeliverable, and the furthest receipt was none"),
        (
            (failed("undeliverable"), entry("READ")),
            "failed as undeliverable, and the furthest receipt was READ",
        ),
        ((failed("gone"),), "failed as gone, which is no reason"),
        (
            (failed("outcome_unknown"), entry("READ", "READ", stored=True)),
            "failed as outcome_unknown, and was told READ",
        ),
        (
            (failed("outcome_unknown"), entry("PENDING", stored=True)),
            "failed as outcome_unknown, and was told nothing, but Evolution knew",
        ),
        ((failed("expired", attempts=0),), "expired before its deadline, without a single attempt"),
        (
            (row("read", path=("queued", "sending", "read", "sent", "read")), entry()),
            "went from read to sent",
        ),
        (
            (row("read", path=("queued", "sending", "sent")), entry()),
            "is read, and its history says queued sending sent",
        ),
        ((row("read", path=()), entry()), "is read, and its history says nothing"),
        ((failed("expired", path=(), attempts=0),), "is failed, and its history says nothing"),
    ],
)
def test_a_status_that_the_ledger_contradicts_is_wrong(given: Sequence[Row | Entry], why: str) -> None:
    assert ("wrong_status", why) in verdict(promise(), *given)


def test_an_echo_that_was_told_in_time_could_have_been_known() -> None:
    told = Entry(1, "K1", 900.0, "PENDING", told={"PENDING": 901.0})
    soon, later = [("queued", 899.0), ("failed", 903.0)], [("queued", 899.0), ("failed", 930.0)]

    unknown = Row(1, "m1", "failed", UNTIL, "outcome_unknown", attempts=1)
    by_time = [
        verdict(promise(), Row(**{**_fields(unknown), "history": history}), told) for history in (soon, later)
    ]

    assert by_time == [[], [("wrong_status", "failed as outcome_unknown, and was told PENDING")]]


def _fields(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in Row.__dataclass_fields__}


def test_what_the_product_does_not_know_is_wrong() -> None:
    assert verdict(entry()) == [("wrong_status", "went out, and the product does not know it")]


def test_counts_each_accepted_message_under_one_end() -> None:
    messages = ledger.gather(
        [promise(1), promise(2), promise(3), promise(4)],
        [row("read"), failed("expired", number=2, id="m2"), row("queued", number=3), row("read", number=9)],
        [],
    )

    assert ledger.tally(messages) == {"read": 1, "failed:expired": 1, "lost": 2}


def test_tells_how_close_a_send_came_to_its_deadline() -> None:
    messages = ledger.gather([promise()], [row()], [entry(asked_at=UNTIL - 3), entry(asked_at=UNTIL - 0.5)])

    assert ledger.closest_call(messages) == pytest.approx(-0.5)
    assert ledger.closest_call([]) is None
