"""Finds out what became of a send whose answer was lost, by the provider's echo of it.

Some providers announce what was sent through their API (Evolution: `send.message`, with id, recipient and text). While
the send is under way that echo is parked like any early receipt. When the answer never comes the message becomes
`unconfirmed`, and the echo, if it can be of no other message, is the proof that it went out, and under which id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta

import structlog
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from instances.accounts import account_of
from instances.providers import provider_for
from messaging import numbers, status
from messaging.models import Message, ParkedReceipt, Status
from messaging.outbound import outbound_of
from messaging.status import Move

log = structlog.get_logger(__name__)

Texts = dict[tuple[int, str], list[Message]]  # by instance and text
Pair = tuple[ParkedReceipt, Message]

# The names in ParkedReceipt.detail. The text is without space around it.
RECIPIENT, TEXT = "recipient_id", "text"

# Evolution repeats an undelivered call for about 20 minutes and then drops it.
ECHO_WITHIN = timedelta(minutes=30)
CLOCKS_DIFFER = timedelta(seconds=5)  # between the worker that sent and the database that dated the echo


def identify() -> int:
    """Moves `unconfirmed` messages whose echo is parked to `submitted`, with the id it names. Returns how many.

    Only where neither message nor echo fits another: of two equal texts to one person in flight, neither is touched.
    To be called by one process at a time, in a transaction.
    """
    instance_ids = _with_echoes(_lost().values_list("instance_id", flat=True).distinct())
    if not instance_ids:
        return 0
    # The order of the two reads matters. A message that gets its id between them was read as still unanswered, and so
    # makes its twin ambiguous; read the other way round, its echo would be taken for the twin's.
    messages = _by_text(_unanswered(instance_ids))
    pairs = _unique(_fitting(list(_unclaimed(messages)), messages))
    proved = [(echo, message) for echo, message in pairs if message.status == Status.UNCONFIRMED]
    status.move(*(_move(echo, message) for echo, message in proved))
    ParkedReceipt.objects.filter(pk__in=[echo.pk for echo, _message in proved]).delete()
    _hurry_receipts([echo for echo, _message in proved])
    return len(proved)


def _hurry_receipts(echoes: Sequence[ParkedReceipt]) -> None:
    """What else is parked under these ids is of a known message now, and need not wait for its next look."""
    waiting = ParkedReceipt.objects.filter(
        instance__in={echo.instance_id for echo in echoes},
        provider_message_id__in=[echo.provider_message_id for echo in echoes],
    )
    waiting.update(next_look_at=F("at"))


def _with_echoes(instance_ids: QuerySet[Message, int]) -> set[int]:
    """Those that have an echo parked: thousands may be unconfirmed after an outage, and there is nothing to compare."""
    echoes = ParkedReceipt.objects.filter(status=Status.SUBMITTED, instance__in=list(instance_ids))
    return set(echoes.values_list("instance_id", flat=True).distinct())


def _lost() -> QuerySet[Message]:
    return Message.objects.filter(status="unconfirmed", provider_message_id=None)


def _unanswered(instance_ids: Collection[int]) -> QuerySet[Message]:
    """Messages of which no id is known yet; by two partial indexes, in which they are few."""
    under_way = Q(status="unconfirmed") | Q(status="sending", lease_until__isnull=False)
    unnamed = Message.objects.filter(under_way, instance__in=instance_ids, provider_message_id=None)
    return unnamed.select_related("instance").only(
        "status", "to", "recipient_id", "content", "attempted_at", "provider_message_id", "instance__provider"
    )


def _by_text(messages: Iterable[Message]) -> Texts:
    texts: Texts = {}
    for message in messages:
        try:
            text = _wire_text(message)
        except Exception:  # one row that makes no sense must not keep the others' echoes waiting
            log.exception("echoes.message_unusable", message_id=message.pk)
            continue
        texts.setdefault((message.instance_id, text), []).append(message)
    return texts


def _unclaimed(messages: Texts) -> QuerySet[ParkedReceipt]:
    """Parked echoes of these texts that are of no message we know by its id."""
    claimant = Message.objects.filter(
        instance=OuterRef("instance"), provider_message_id=OuterRef("provider_message_id")
    )
    echoes = ParkedReceipt.objects.filter(~Exists(claimant), status=Status.SUBMITTED)
    return echoes.filter(
        instance__in={instance_id for instance_id, _text in messages},
        detail__text__in=[text for _instance_id, text in messages],
    )


def _fitting(echoes: Sequence[ParkedReceipt], messages: Texts) -> list[Pair]:
    return [
        (echo, message)
        for echo in echoes
        for message in messages.get((echo.instance_id, echo.detail[TEXT]), ())
        if _fits(echo, message)
    ]


def _wire_text(message: Message) -> str:
    """The text by which the provider would call this message."""
    return provider_for(message.instance).wire_text(account_of(message.instance_id), outbound_of(message))


def _fits(echo: ParkedReceipt, message: Message) -> bool:
    if message.attempted_at is None:
        return False
    in_time = -CLOCKS_DIFFER <= echo.at - message.attempted_at <= ECHO_WITHIN
    return in_time and _is_recipient(message, echo.detail.get(RECIPIENT, ""))


def _is_recipient(message: Message, recipient_id: str) -> bool:
    if not recipient_id or recipient_id in {message.recipient_id, message.to}:
        return bool(recipient_id)
    user = recipient_id.partition("@")[0].partition(":")[0]
    return numbers.compare_key(f"+{user}") == numbers.compare_key(message.to)


def _unique(pairs: Sequence[Pair]) -> list[Pair]:
    echoes = Counter(echo.pk for echo, _message in pairs)
    messages = Counter(message.pk for _echo, message in pairs)
    return [(echo, message) for echo, message in pairs if echoes[echo.pk] == 1 and messages[message.pk] == 1]


def _move(echo: ParkedReceipt, message: Message) -> Move:
    return Move(
        message_id=message.pk,
        to=Status.SUBMITTED,
        at=echo.at,
        provider_message_id=echo.provider_message_id,
        recipient_id=echo.detail[RECIPIENT],
        detail={"why": "echo"},
    )
