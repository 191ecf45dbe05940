"""What the API answers, as dataclasses. Fields of a newer server than this package knows are in `raw`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

R = TypeVar("R", bound="Record")
Reader = Callable[[Any], Any]

# How far a message has got. Failed and cancelled ones go no further.
PROGRESS = ("queued", "sending", "unconfirmed", "submitted", "sent", "delivered", "read", "played")
ENDED = ("failed", "cancelled")


@dataclass(frozen=True, kw_only=True)
class Record:
    """`raw` is the answer as it came."""

    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls: type[R], data: Mapping[str, Any]) -> R:
        """The record that the API's JSON says. Raises KeyError when a field is missing."""
        readers = _readers(cls)  # type: ignore[arg-type] # mypy takes the class for one of its objects
        return cls(raw=data, **{name: read(data[name]) for name, read in readers.items()})


@cache
def _readers(record: type[Record]) -> dict[str, Reader]:
    hints = get_type_hints(record)
    return {each.name: _reader(hints[each.name]) for each in fields(record) if each.name != "raw"}


def _reader(hint: Any) -> Reader:
    """What makes a value of this type from JSON."""
    origin, inner = get_origin(hint), [one for one in get_args(hint) if one is not NoneType]
    if origin is UnionType:
        return _or_none(_reader(inner[0]))
    if origin is list:
        return _each(_reader(inner[0]))
    if hint is datetime:
        return lambda written: datetime.fromisoformat(written.replace("Z", "+00:00"))
    if origin is None and isinstance(hint, type) and issubclass(hint, Record):
        return hint.of
    return lambda value: value


def _or_none(read: Reader) -> Reader:
    return lambda value: None if value is None else read(value)


def _each(read: Reader) -> Reader:
    return lambda items: [read(item) for item in items]


# --- messages ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Failure(Record):
    """Why a message failed: a code from a closed list, a sentence, and what the provider said."""

    code: str
    message: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Message(Record):
    """A message and what became of it. Times are None until they happen."""

    id: str
    status: str
    to: str
    instance: str
    category: str
    template: str | None
    urgent: bool
    environment: str
    scheduled_at: datetime | None
    deliver_until: datetime
    created_at: datetime
    submitted_at: datetime | None
    sent_at: datetime | None
    delivered_at: datetime | None
    read_at: datetime | None
    failed_at: datetime | None
    cancelled_at: datetime | None
    failure: Failure | None
    attempts: int
    provider_message_id: str | None
    reference: str
    metadata: Mapping[str, str]
    position: int | None
    expected_at: datetime | None
    why: str | None

    @property
    def ended(self) -> bool:
        """Whether it failed or was cancelled."""
        return self.status in ENDED

    def reached(self, status: str) -> bool:
        """Whether it has got as far as `status`, which is one of PROGRESS, or further."""
        return self.status in PROGRESS[PROGRESS.index(status) :]


@dataclass(frozen=True, kw_only=True)
class Why(Record):
    """Why a message has not gone out yet; `why` is None when it does not wait any more."""

    id: str
    status: str
    why: str | None
    position: int | None
    expected_at: datetime | None
    deliver_until: datetime
    attempts: int


@dataclass(frozen=True, kw_only=True)
class Event(Record):
    """One line of a message's timeline. `applied` is False for news that came too late to change anything."""

    id: str
    at: datetime
    kind: str
    applied: bool
    detail: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class BatchItem(Record):
    """What became of one message of a batch: `message`, or `error` with code, message and fields."""

    status: int
    replayed: bool
    message: Message | None
    error: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class BatchResult(Record):
    """What became of a batch; `results` are in the order of the messages."""

    accepted: int
    refused: int
    results: list[BatchItem]


# --- templates --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TemplateVersion(Record):
    """One text of a template. It never changes."""

    number: int
    content: Mapping[str, Any]
    variables: list[str]
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class Template(Record):
    """A template and the version that messages are made from."""

    name: str
    category: str
    status: str
    current_version: TemplateVersion | None
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class Preview(Record):
    """A message as it would be sent."""

    content: Mapping[str, Any]
    length: int
    warnings: list[str]


# --- people -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class OptIn(Record):
    """A person's consent; with `revoked_at` they asked not to be written to."""

    granted_at: datetime | None
    revoked_at: datetime | None
    source: str
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Contact(Record):
    """A person. `opt_in` is None while nothing is on record."""

    number: str
    name: str
    recipient_id: str
    created_at: datetime
    opt_in: OptIn | None


@dataclass(frozen=True, kw_only=True)
class RowFault(Record):
    """What is wrong with a row of a file; 1 is the first after the header."""

    row: int
    field: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Imported(Record):
    """What became of a file."""

    taken: int
    refused: list[RowFault]


@dataclass(frozen=True, kw_only=True)
class CheckedNumber(Record):
    """What is known of a number. `on_whatsapp` is None while that is not known."""

    given: str
    valid: bool
    number: str | None
    country: str | None
    type: str | None
    on_whatsapp: bool | None


# --- instances --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Instance(Record):
    """A number that messages are sent from; they wait unless its status is `open`."""

    name: str
    status: str
    since: datetime
    paused: bool
    number: str


@dataclass(frozen=True, kw_only=True)
class Pairing(Record):
    """How to connect an instance: draw `qr_code` as a QR code, or type `pairing_code`."""

    status: str
    qr_code: str
    pairing_code: str
    expires_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Queue(Record):
    """How an instance's queue is."""

    instance: str
    status: str
    paused: bool
    queued: int
    delayed: int
    in_flight: int
    oldest_seconds: int | None
    failed: int
    sent_per_hour: int
    sent_by_hour: list[int]
    breaker_until: datetime | None
    next_send_at: datetime | None
    empty_at: datetime | None
    too_long: bool
    too_old: bool
    cancelling: int


@dataclass(frozen=True, kw_only=True)
class Media(Record):
    """An uploaded file."""

    media_id: str
    mime_type: str
    size: int
    expires_at: datetime


# --- keys and usage ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Key(Record):
    """An API key, without its secret."""

    prefix: str
    name: str
    environment: str
    scopes: list[str]
    state: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    ends_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class IssuedKey(Key):
    """A new key. `key` is the key itself, which cannot be had again."""

    key: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Usage(Record):
    """Messages that were accepted in a month of the tenant's time zone."""

    month: str
    environment: str
    accepted: int


# --- webhooks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Endpoint(Record):
    """Where events are posted. `secret` is only known of a new one."""

    id: str
    url: str
    description: str
    types: list[str]
    version: str
    header_names: list[str]
    environment: str
    created_at: datetime
    enabled: bool
    disabled_at: datetime | None
    disabled_by: str | None
    failing_since: datetime | None
    succeeded_at: datetime | None

    @property
    def secret(self) -> str | None:
        """What its calls are signed with: shown once, when it was made."""
        return self.raw.get("secret")


@dataclass(frozen=True, kw_only=True)
class Delivery(Record):
    """An event on its way to an endpoint. One that was asked for by its id has `payload` and `log` in `raw`."""

    id: str
    event_id: str
    type: str
    status: str
    attempts: int
    created_at: datetime
    next_attempt_at: datetime | None
    finished_at: datetime | None
    last_status_code: int | None
    last_error: str


@dataclass(frozen=True, kw_only=True)
class Replay(Record):
    """A time that is delivered again."""

    id: str
    since: datetime
    until: datetime
    everything: bool
    replayed: int
    finished_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class EventType(Record):
    """One kind of event, with the JSON Schema of its data."""

    name: str
    description: str
    schema: Mapping[str, Any]
    example: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class WebhookEvent(Record):
    """What a verified call says. `id` is the same at every attempt: handle each once."""

    id: str
    type: str
    timestamp: datetime
    environment: str | None
    project: str | None
    sample: bool
    data: Mapping[str, Any]
