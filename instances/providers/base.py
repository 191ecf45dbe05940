"""The contract between Pilot and a provider: plain values in, plain values out, and no I/O.

An adapter translates. For each verb it returns a `Call`: the HTTP request to make, and how to read the answer.
`instances/providers/http.py` performs calls (blocking or asynchronous) and is the only place that touches the network,
so every transport failure is classified once, and an adapter is tested against recorded traffic without any network.

    ProviderError
    └── outcome   rejected       the provider said a final no
                  retry          surely not sent: refused connection, throttled
                  instance_down  the account has no live connection; costs no attempt
                  unknown        the request may have gone out; look it up before anything else
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from instances.providers import bounds

T = TypeVar("T")


class Outcome(StrEnum):
    """What a failed call means for the message (DESIGN §4)."""

    REJECTED = "rejected"
    RETRY = "retry"
    INSTANCE_DOWN = "instance_down"
    UNKNOWN = "unknown"


# The closed list of ProviderError codes.
REJECTED_PAYLOAD = "rejected"  # our request is wrong; sending it again cannot help
NOT_ON_WHATSAPP = "not_on_whatsapp"
THROTTLED = "throttled"
UNREACHABLE = "provider_unreachable"
DISCONNECTED = "instance_disconnected"
INSTANCE_REMOVED = "instance_removed"
UNDELIVERABLE = "undeliverable"
WINDOW_CLOSED = "window_closed"  # the 24 hours after the person's last message are over
OPTED_OUT = "opted_out"
TEMPLATE_REJECTED = "template_rejected"
HELD_BACK = "held_back"  # the provider spares the person another marketing message
COMMENT_ANSWERED = "comment_answered"  # a comment may be answered in private once
UNSUPPORTED = "unsupported"  # the provider has no such verb
MISCONFIGURED = "provider_misconfigured"  # wrong key, licence, permission
NO_ANSWER = "no_answer"
AMBIGUOUS = "ambiguous_answer"
INTERNAL = "internal"  # a fault of ours: it says nothing about the provider


class ProviderError(Exception):
    """A call that did not succeed, carrying the decision about what follows.

    `detail` is cut to 500 characters that can be stored, `retry_after` (seconds) to an hour.
    """

    def __init__(self, code: str, detail: str, *, outcome: Outcome, retry_after: float | None = None) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = bounds.text(detail, most=bounds.DETAIL_LENGTH)
        self.outcome = outcome
        self.retry_after = bounds.wait(retry_after)


# --- what goes in -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Account:
    """An instance as its provider sees it."""

    name: str
    base_url: str
    api_key: str = field(repr=False)
    credentials: Mapping[str, Any] = field(default_factory=dict, repr=False)
    account_id: str = ""  # what the provider calls the number or account
    business_id: str = ""  # and the business that has it
    link_preview: bool = False
    buttons_as_text: bool = True


@dataclass(frozen=True, slots=True)
class Button:
    """`kind` is reply, url, call or copy; `value` is the id, address, number or code."""

    kind: str
    label: str
    value: str


@dataclass(frozen=True, slots=True)
class OutboundMessage:
    """A message ready to be sent. `to` is E.164; `recipient_id` is the provider's own id, where known."""

    id: str
    to: str
    text: str
    recipient_id: str = ""
    title: str = ""
    footer: str = ""
    buttons: Sequence[Button] = ()
    provider_message_id: str = ""
    attempted_at: datetime | None = None  # when the last call started; for look-ups
    kind: str = "text"
    content: Mapping[str, Any] = field(default_factory=dict)  # the whole of it, for kinds that are no text
    reply_to: str = ""  # the provider's id of the message that it answers
    attempt: int = 1
    last_received_id: str = (
        ""  # the provider's id of the person's last message; typing is shown as an answer to it
    )


@dataclass(frozen=True, slots=True)
class HookConfig:
    """Where a provider should post its events. `plain` is to this very URL, and without the media themselves."""

    url: str
    events: Sequence[str]
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    plain: bool = True


# --- the call ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to send along, and the fields of the form around it."""

    name: str
    mime_type: str
    data: bytes = field(repr=False)
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request. `timeout` is in seconds, for the whole exchange. Its body is `json`, or a form with a file."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    json: Any = None
    timeout: float = 30.0
    upload: Upload | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: `body` is the parsed JSON, or None when there was none. Header names are in lower case."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request and how to read its answer. `read` raises ProviderError.

    `sends` says that the request hands a message over: a lost answer then means unknown, not retry. A call with a
    `fault` is never made: performing it raises that. Nor is one whose answer is `known`: that is read at once.
    """

    request: Request
    read: Callable[[Answer], T]
    sends: bool = False
    fault: ProviderError | None = None
    known: Answer | None = None


# --- what comes out ---------------------------------------------------------------------------------------


class _Identified:
    """Something with ids as the provider said them. One that does not fit its column is taken for not said."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for name, most in (
            ("provider_message_id", bounds.ID_LENGTH),
            ("recipient_id", bounds.ADDRESS_LENGTH),
        ):
            object.__setattr__(self, name, bounds.identifier(getattr(self, name), most=most))


@dataclass(frozen=True, slots=True)
class Receipt(_Identified):
    """The provider took the message over. `status` is submitted or sent.

    `to_come` are receipts that no webhook will bring, each with the seconds until it is due.
    """

    provider_message_id: str
    recipient_id: str
    status: str
    to_come: Sequence[tuple[float, StatusEvent]] = ()


class Finding(StrEnum):
    """What a look-up of an unknown outcome found."""

    FOUND = "found"
    NOT_SENT = "not_sent"
    STILL_UNKNOWN = "still_unknown"


@dataclass(frozen=True, slots=True)
class Found(_Identified):
    """The result of `find`; with `finding == FOUND` the id and the furthest status that is proved."""

    finding: Finding
    provider_message_id: str = ""
    recipient_id: str = ""
    status: str = ""


@dataclass(frozen=True, slots=True)
class StatusEvent(_Identified):
    """A receipt: `status` is one of messaging's words (submitted, sent, delivered, read, played, failed)."""

    provider_message_id: str
    status: str
    code: str = ""
    detail: str = ""
    recipient_id: str = ""
    text: str = ""  # where the event carries the message itself, for matching an unknown outcome
    message_id: str = ""  # our own id of the message, where the provider gives it back
    account_id: str = ""  # whose news it is, where one delivery tells of several accounts
    extra: Mapping[str, Any] = field(default_factory=dict)  # prices and errors as the provider said them


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """A message from a person to the account."""

    provider_message_id: str
    sender_id: str
    sender_number: str  # E.164, empty where the provider hides it
    sender_name: str
    kind: str
    text: str
    at: datetime | None
    raw: Mapping[str, Any]
    user_id: str = ""  # the business-scoped id of the person, where the provider has one
    reply_to: str = ""  # the provider's id of the message that it answers
    account_id: str = ""
    opens_window: bool = False  # whether the person may be written to freely after it
    outgoing: bool = False  # the account itself wrote it, from another program


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """A change of the account's connection: `state` is connecting, open, closed or removed."""

    state: str
    reason: str = ""
    owner_id: str = ""
    number: str = ""
    profile_name: str = ""


@dataclass(frozen=True, slots=True)
class Pairing:
    """What a person scans or types to connect. Empty strings when the provider has none yet."""

    qr_code: str = ""  # the payload to draw
    pairing_code: str = ""
    count: int = 0
    already_open: bool = False
    exhausted: bool = False  # the provider stopped issuing codes


@dataclass(frozen=True, slots=True)
class Notice:
    """News of the account itself, for its history; `kind` is one of instances/notices.py's.

    About all accounts of a business where `account_id` is empty.
    """

    kind: str
    detail: Mapping[str, Any]
    account_id: str = ""
    business_id: str = ""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An item of a delivery that cannot be kept, and why. What else the delivery says stands."""

    reason: str


Event = StatusEvent | InboundMessage | ConnectionEvent | Pairing | Notice | Unreadable


class Provider(Protocol):
    """One messaging service. Methods build calls or read bytes; none of them does I/O."""

    name: str
    supports: frozenset[
        str
    ]  # of "typing", "find", "pairing", "restart", "window", "pair_rate", "templates", "media"
    kinds: frozenset[str]  # of content, in messaging's words
    hook_events: tuple[str, ...]  # what to subscribe a webhook to, in the provider's words

    def send(self, account: Account, message: OutboundMessage) -> Call[Receipt]: ...

    def faults(self, message: OutboundMessage) -> Mapping[str, str]:
        """What the provider would refuse in a message of one of its kinds: a sentence for each part of its content."""

    def wire_text(self, account: Account, message: OutboundMessage) -> str:
        """The text that `StatusEvent.text` of this message would have."""

    def typing(self, account: Account, message: OutboundMessage, *, milliseconds: int) -> Call[None]: ...

    def find(self, account: Account, message: OutboundMessage, *, now: datetime) -> Call[Found]: ...

    def parse(self, body: Any) -> list[Event]: ...

    def create(self, account: Account, *, hook: HookConfig) -> Call[Mapping[str, Any]]: ...

    def connect(self, account: Account, *, number: str = "") -> Call[Pairing]: ...

    def restart(self, account: Account) -> Call[str]: ...

    def logout(self, account: Account) -> Call[None]: ...

    def delete(self, account: Account) -> Call[None]: ...

    def state(self, account: Account) -> Call[str]: ...

    def presence(self, account: Account) -> Call[None]: ...

    def set_hook(self, account: Account, hook: HookConfig | None) -> Call[None]: ...

    def get_hook(self, account: Account) -> Call[HookConfig | None]: ...


class Unhosted:
    """The verbs of accounts that are not made, connected or moved by us: calls that are never made, and say so."""

    hook_events: tuple[str, ...] = ()

    def find(self, account: Account, message: OutboundMessage, *, now: datetime) -> Call[Found]:
        return _unsupported("find")

    def create(self, account: Account, *, hook: HookConfig) -> Call[Mapping[str, Any]]:
        return _unsupported("create")

    def connect(self, account: Account, *, number: str = "") -> Call[Pairing]:
        return _unsupported("connect")

    def restart(self, account: Account) -> Call[str]:
        return _unsupported("restart")

    def logout(self, account: Account) -> Call[None]:
        return _unsupported("logout")

    def delete(self, account: Account) -> Call[None]:
        return _unsupported("delete")

    def set_hook(self, account: Account, hook: HookConfig | None) -> Call[None]:
        return _unsupported("set_hook")

    def get_hook(self, account: Account) -> Call[HookConfig | None]:
        return _unsupported("get_hook")


def _unsupported(verb: str) -> Call[Any]:
    error = ProviderError(UNSUPPORTED, f"This provider has no “{verb}”.", outcome=Outcome.REJECTED)
    return Call(Request("GET", "", headers={}), read=lambda _answer: None, fault=error)
