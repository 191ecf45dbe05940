"""Accepting messages: checked, then written down whole. From then on the row is the job.

What is only looked up is read first (messaging/composing.py); then one statement writes (messaging/storing.py). One
message or a thousand: the number of statements is the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from accounts.models import ApiKey
from messaging.composing import Draft, Submission, compose_all
from messaging.forecasting import Forecast
from messaging.models import Message
from messaging.storing import Entry, store
from pilot import sql
from pilot.celery import wake_on_commit
from pilot.errors import PilotError


class KeyReused(PilotError):
    """The Idempotency-Key came before with another body."""

    code = "idempotency_key_reused"
    status = 422


class StillRunning(PilotError):
    """A request with this Idempotency-Key is being accepted at this moment."""

    code = "still_running"
    status = 409


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A client's key, and the digest of the request that it stands for."""

    key: str
    digest: str

    @classmethod
    def of(cls, key: str, *, project_id: int, body: Any) -> Idempotency:
        """`body` is the request as parsed from JSON; the order of its fields does not matter."""
        canonical = json.dumps([project_id, body], sort_keys=True, separators=(",", ":"))
        return cls(key, hashlib.sha256(canonical.encode()).hexdigest())


class Order(NamedTuple):
    """A submission for the project and environment of `key`, whose `project.tenant` must be loaded."""

    key: ApiKey
    submission: Submission
    idempotency: Idempotency | None = None


class Accepted(NamedTuple):
    """`replayed` says that the message had been accepted by an earlier request with the same Idempotency-Key."""

    message: Message
    replayed: bool
    forecast: Forecast | None = None


Answer = Accepted | PilotError


@dataclass(frozen=True, slots=True)
class Prepared:
    """Orders, with the answers that are known without writing anything, and drafts for the others."""

    orders: Sequence[Order]
    answers: Mapping[int, Answer]  # by the order's place
    drafts: Mapping[int, Draft]


def submit(order: Order, *, now: datetime) -> Accepted:
    """Accepts a message, or refuses it with a PilotError. Wakes the instance once all is committed.

    The message is due at once, or at `scheduled_at`, and not after its deadline: that of its category
    (settings.DEADLINES), counted from then, or `deliver_until` where that is earlier.
    """
    [answer] = submit_all([order], now=now)
    if isinstance(answer, PilotError):
        raise answer
    return answer


def submit_all(orders: Sequence[Order], *, now: datetime) -> list[Answer]:
    """The same for many: for each, in their order, what became of it. One that is refused disturbs no other."""
    return accept(prepare(orders, now=now))


def prepare(orders: Sequence[Order], *, now: datetime) -> Prepared:
    """Checks orders. Writes nothing, so whatever it raises, nothing was accepted."""
    answers: dict[int, Answer] = _earlier(dict(enumerate(orders)))
    open_orders = {place: order for place, order in enumerate(orders) if place not in answers}
    composed = compose_all([(order.key, order.submission) for order in open_orders.values()], now=now)
    drafts = {}
    for place, draft in zip(open_orders, composed, strict=True):
        if isinstance(draft, PilotError):
            answers[place] = draft
        else:
            drafts[place] = draft
    return Prepared(orders, answers, drafts)


def accept(prepared: Prepared) -> list[Answer]:
    """Accepts all drafts, in one statement; what wakes their instances follows the commit.

    Returns for each order, in their order, what became of it.
    """
    stored = _store(prepared)
    answers = dict(prepared.answers)
    lost = {}
    for place, draft in prepared.drafts.items():
        if draft.message.pk in stored:
            answers[place] = Accepted(draft.message, replayed=False, forecast=draft.forecast)
        else:
            lost[place] = prepared.orders[place]
    answers |= _winners(lost)
    return [answers[place] for place in range(len(prepared.orders))]


def _store(prepared: Prepared) -> set[str]:
    """The ids of what was stored: all but those whose Idempotency-Key another request has."""
    entries = [_entry(draft.message, prepared.orders[place]) for place, draft in prepared.drafts.items()]
    if not entries:
        return set()
    stored = store(entries)
    due = [entry.message for entry in entries if not entry.message.scheduled_at]
    wake_on_commit(*{message.instance_id for message in due if message.pk in stored})
    return stored


def _entry(message: Message, order: Order) -> Entry:
    detail = {"instance": message.instance.name, "deliver_until": message.deliver_until.isoformat()}
    if once := order.idempotency:
        return Entry(message, detail, once.key, once.digest)
    return Entry(message, detail)


# --- asking again -----------------------------------------------------------------------------------------


def _winners(lost: Mapping[int, Order]) -> dict[int, Answer]:
    """What the requests that were faster made; StillRunning where one has not committed yet."""
    running = StillRunning(_("A request with this Idempotency-Key is still running; ask again in a moment."))
    return dict.fromkeys(lost, running) | _earlier(lost)


_EARLIER = """
SELECT known.tenant_id, known.environment, known.key, known.body_digest, known.message_id
FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS wanted (tenant_id, environment, key)
JOIN messaging_idempotencykey known ON known.tenant_id = wanted.tenant_id
    AND known.environment = wanted.environment AND known.key = wanted.key
"""


def _earlier(orders: Mapping[int, Order]) -> dict[int, Answer]:
    """The messages that Idempotency-Keys stand for already; KeyReused where that was another request."""
    digests = {
        place: (_place_of_key(order), order.idempotency.digest)
        for place, order in orders.items()
        if order.idempotency
    }
    if not digests:
        return {}
    rows = sql.fetch(_EARLIER, sql.transposed({key for key, _digest in digests.values()}))
    known = {(tenant_id, environment, key): rest for tenant_id, environment, key, *rest in rows}
    found = {place: (digest, *known[key]) for place, (key, digest) in digests.items() if key in known}
    messages = _messages({message_id for _digest, _known, message_id in found.values()})
    return {
        place: Accepted(messages[message_id], replayed=True) if digest == known_digest else _reused()
        for place, (digest, known_digest, message_id) in found.items()
    }


def _place_of_key(order: Order) -> tuple[int, str, str]:
    assert order.idempotency is not None
    return order.key.tenant_id, order.key.environment, order.idempotency.key


def _messages(ids: set[str]) -> dict[str, Message]:
    related = ("instance__lane", "instance__tenant", "template_version__template")
    return Message.objects.select_related(*related).in_bulk(ids) if ids else {}


def _reused() -> KeyReused:
    return KeyReused(
        _("This Idempotency-Key was used for another request."),
        fields={"Idempotency-Key": [_("Use a new key for a new message.")]},
    )
