"""A provider that reaches nobody: what a message comes to is written in one table, by the number that it is for.

Its calls are never made, because their answers are known; its receipts are known, too, when the message is handed over.
So a simulated message goes the way of every other one, and no request leaves this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from instances.providers.base import (
    NO_ANSWER,
    NOT_ON_WHATSAPP,
    OPTED_OUT,
    UNREACHABLE,
    WINDOW_CLOSED,
    Account,
    Answer,
    Call,
    Event,
    Finding,
    Found,
    OutboundMessage,
    Outcome,
    ProviderError,
    Receipt,
    Request,
    StatusEvent,
    T,
    Unhosted,
)

DELIVERED = ((1.0, "sent"), (2.0, "delivered"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What becomes of a message: the status it ends in, with which failure code, and the sentence in the documentation.

    - `error`: code and outcome of the attempts that fail; `fails`: how many do, all where it is None
    - `receipts`: a status each, with the seconds since the provider took the message over
    - `found`: the status that a look-up proves after a lost answer
    - `expires_in`: seconds to its deadline, for which it waits
    - `webhooks_fail`: how many attempts of each webhook about it fail
    """

    name: str
    ends: str
    sentence: str
    failure: str = ""
    error: tuple[str, Outcome] | None = None
    fails: int | None = None
    receipts: Sequence[tuple[float, str]] = ()
    found: str = ""
    expires_in: float | None = None
    webhooks_fail: int = 0


# NANP keeps 555-0100 to 555-0199 of every area code for fiction: they look right, and are nobody's.
SCENARIOS: Mapping[str, Scenario] = {
    "+12015550101": Scenario(
        name="delivered",
        ends="delivered",
        sentence="Sent after 1 s, delivered after 2 s.",
        receipts=DELIVERED,
    ),
    "+12015550102": Scenario(
        name="read",
        ends="read",
        sentence="Sent after 1 s, delivered after 2 s, read after 4 s.",
        receipts=(*DELIVERED, (4.0, "read")),
    ),
    "+12015550103": Scenario(
        name="not_on_whatsapp",
        ends="failed",
        sentence="Fails at once: nobody on WhatsApp has the number.",
        failure=NOT_ON_WHATSAPP,
        error=(NOT_ON_WHATSAPP, Outcome.REJECTED),
    ),
    "+12015550104": Scenario(
        name="window_closed",
        ends="failed",
        sentence="Fails at once: the person's last message is more than 24 hours old.",
        failure=WINDOW_CLOSED,
        error=(WINDOW_CLOSED, Outcome.REJECTED),
    ),
    "+12015550105": Scenario(
        name="lost_answer",
        ends="delivered",
        sentence="The provider's answer is lost: unconfirmed at once, looked up after 5 to 10 s, and found delivered.",
        error=(NO_ANSWER, Outcome.UNKNOWN),
        found="delivered",
    ),
    "+12015550106": Scenario(
        name="outage",
        ends="delivered",
        sentence="The provider cannot be reached: tried again after 24 to 36 s, and delivered 2 s later.",
        error=(UNREACHABLE, Outcome.RETRY),
        fails=1,
        receipts=DELIVERED,
    ),
    "+12015550107": Scenario(
        name="late_receipt",
        ends="delivered",
        sentence="No receipt for 20 s, then delivered.",
        receipts=((20.0, "delivered"),),
    ),
    "+12015550108": Scenario(
        name="expired",
        ends="failed",
        sentence="Its deadline is 5 s away, and it waits until then.",
        failure="expired",
        expires_in=5.0,
    ),
    "+12015550109": Scenario(
        name="opted_out",
        ends="failed",
        sentence="Fails at once: the person opted out after the message was accepted.",
        failure=OPTED_OUT,
        error=(OPTED_OUT, Outcome.REJECTED),
    ),
    "+12015550110": Scenario(
        name="webhook_failures",
        ends="delivered",
        sentence="Delivered like the first, but the first attempt of each webhook about it fails, as if answered with "
        "500; it is repeated after 5 s.",
        receipts=DELIVERED,
        webhooks_fail=1,
    ),
}
# Whoever else is written to from a simulator.
ORDINARY = SCENARIOS["+12015550101"]
ANSWER = Answer(status=200, body=None)


class Simulator(Unhosted):
    """The adapter. An account is nothing but a name."""

    name = "simulator"
    supports = frozenset({"find"})
    kinds = frozenset(
        {
            "text",
            "image",
            "video",
            "audio",
            "document",
            "sticker",
            "list",
            "flow",
            "location_request",
            "location",
            "contacts",
            "reaction",
            "template",
        }
    )

    def send(self, account: Account, message: OutboundMessage) -> Call[Receipt]:
        """Takes the message over, or does not, as its number has it."""
        scenario = SCENARIOS.get(message.to, ORDINARY)

        def read(_answer: Answer) -> Receipt:
            if scenario.error and (scenario.fails is None or message.attempt <= scenario.fails):
                code, outcome = scenario.error
                raise ProviderError(code, f"Simulated: {scenario.sentence}", outcome=outcome)
            return _receipt(scenario, message)

        return _known(read, sends=True)

    def find(self, account: Account, message: OutboundMessage, *, now: datetime) -> Call[Found]:
        """Finds what was sent with a lost answer, and nothing else."""
        scenario = SCENARIOS.get(message.to, ORDINARY)
        if not scenario.found:
            return _known(lambda _answer: Found(Finding.STILL_UNKNOWN))
        found = Found(Finding.FOUND, _id_of(message), message.to, scenario.found)
        return _known(lambda _answer: found)

    def faults(self, message: OutboundMessage) -> Mapping[str, str]:
        """None: it takes whatever messaging takes."""
        return {}

    def wire_text(self, account: Account, message: OutboundMessage) -> str:
        """The text alone; there are no echoes to compare it with."""
        return message.text.strip()

    def typing(self, account: Account, message: OutboundMessage, *, milliseconds: int) -> Call[None]:
        """Nobody sees it."""
        return _known(lambda _answer: None)

    def parse(self, body: Any) -> list[Event]:
        """Nobody may post for it. Raises ValueError."""
        raise ValueError("The simulator takes no webhooks.")

    def state(self, account: Account) -> Call[str]:
        """Always open."""
        return _known(lambda _answer: "open")

    def presence(self, account: Account) -> Call[None]:
        """Always there."""
        return _known(lambda _answer: None)

    def restart(self, account: Account) -> Call[str]:
        """Always open."""
        return self.state(account)


def _receipt(scenario: Scenario, message: OutboundMessage) -> Receipt:
    provider_message_id = _id_of(message)
    to_come = [(seconds, StatusEvent(provider_message_id, status)) for seconds, status in scenario.receipts]
    return Receipt(provider_message_id, message.to, "submitted", to_come)


def _id_of(message: OutboundMessage) -> str:
    return f"SIMULATED-{message.id}"


def _known(read: Callable[[Answer], T], *, sends: bool = False) -> Call[T]:
    return Call(Request("GET", "", headers={}), read=read, sends=sends, known=ANSWER)
