"""Asks providers for receipts that did not come by themselves (DESIGN §7).

Evolution drops updates, and a webhook can be lost with the process that would have repeated it. So a message that the
provider took over, and of which nothing more was heard, is asked about: first after settings.ACK_POLL_AFTER, then each
time after as long as has passed, and for settings.ACK_POLL_FOR in all. A phone that is switched off gives no receipt:
then there is nothing to find, and the message stays `submitted`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import structlog
from django.conf import settings
from django.db import DatabaseError, connection

from instances import vitals
from instances.accounts import account_of
from instances.models import InstanceStatus
from instances.providers import provider_for
from instances.providers.base import Call, Finding, Found, ProviderError
from instances.providers.http import perform_all
from messaging import status
from messaging.models import FailureCode, Message, Status
from messaging.outbound import outbound_of
from messaging.status import Move

log = structlog.get_logger(__name__)

ASKED_AT_ONCE = 100
CALL_SECONDS = 6.0
RUN_SECONDS = 12.0

PROOF = frozenset({Status.SENT, Status.DELIVERED, Status.READ, Status.PLAYED})

# Taking a message moves its time on, so that two processes do not ask the same. Without an id there is nothing to ask
# for: what has the same text may be another message.
_TAKE = """
UPDATE messaging_message SET next_attempt_at = CASE
    WHEN provider_message_id IS NOT NULL AND submitted_at > %(now)s - %(lasts)s
    THEN %(now)s + least(greatest(%(now)s - submitted_at, interval '1 minute'), interval '6 hours') END
WHERE id IN (
    SELECT id FROM messaging_message WHERE status = 'submitted' AND next_attempt_at <= %(now)s
    ORDER BY next_attempt_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING id
"""


def ask(*, now: datetime) -> dict[str, int]:
    """Asks about every message whose receipt is overdue, for at most 12 s; the rest is left to the next run.

    Returns how many were `asked` about, for how many the provider knew more (`proved`, `failed`), and how many it did
    not answer. May run twice at once.
    """
    counts: Counter[str] = Counter()
    until = time.monotonic() + RUN_SECONDS
    while time.monotonic() < until:
        messages = _take(now)
        counts.update(_ask(messages, now))
        if len(messages) < ASKED_AT_ONCE:
            break
    return dict(counts)


def _take(now: datetime) -> Sequence[Message]:
    values: dict[str, Any] = {"now": now, "lasts": settings.ACK_POLL_FOR, "limit": ASKED_AT_ONCE}
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, values)
        ids = [row[0] for row in cursor.fetchall()]
    # Without the secrets: one that cannot be decrypted would keep all the others from being asked about.
    secrets = ("instance__credentials", "instance__hook_token")
    askable = Message.objects.filter(pk__in=ids, provider_message_id__isnull=False)
    present = askable.exclude(instance__status=InstanceStatus.REMOVED)
    return list(present.select_related("instance").defer(*secrets))


def _ask(messages: Sequence[Message], now: datetime) -> Counter[str]:
    calls = {message.pk: call for message in messages if (call := _question(message, now))}
    results = perform_all(list(calls.values()), within=CALL_SECONDS)
    answers = dict(zip(calls, results, strict=True))
    news = {
        key: found.status for key, found in answers.items() if isinstance(found, Found) and _is_news(found)
    }
    status.move(*(_move(key, word, now) for key, word in sorted(news.items())))
    vitals.asked(_proofs(messages, news), at=now)
    return Counter(
        asked=len(calls),
        proved=sum(word in PROOF for word in news.values()),
        failed=sum(word == Status.FAILED for word in news.values()),
        unanswered=sum(isinstance(answer, ProviderError) for answer in answers.values()),
    )


def _question(message: Message, now: datetime) -> Call[Found] | None:
    """How to ask about a message; None when that cannot even be put together, which is then logged."""
    try:
        provider = provider_for(message.instance)
        if "find" not in provider.supports:
            return None
        return provider.find(account_of(message.instance_id), outbound_of(message), now=now)
    except DatabaseError:
        raise
    except Exception:
        log.exception("acknowledging.unusable", message_id=message.pk)
        return None


def _is_news(found: Found) -> bool:
    return found.finding == Finding.FOUND and found.status not in {"", Status.SUBMITTED}


def _move(message_id: str, word: str, now: datetime) -> Move:
    return Move(
        message_id=message_id,
        to=word,
        at=now,
        failure_code=FailureCode.UNDELIVERABLE if word == Status.FAILED else "",
        detail={"why": "look_up"},
    )


def _proofs(messages: Sequence[Message], news: Mapping[str, str]) -> Counter[int]:
    """How many receipts were found of each instance."""
    return Counter(each.instance_id for each in messages if news.get(each.pk) in PROOF)
