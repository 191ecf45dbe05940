"""When a person may be written to freely: for a day after their last message (WhatsApp's and Instagram's rule).

Known from the times of people's messages, as the provider gives them; asked at the moment of sending, with a margin. A
provider that refuses all the same, at once or later by webhook, is believed: `note_failures` is the one place for that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings

from accounts.models import Tenant
from instances import meta_templates
from instances.models import Instance, Provider
from instances.providers import PROVIDERS
from instances.providers.base import InboundMessage
from messaging import numbers, opt_ins
from messaging.content import kind_of
from messaging.models import FailureCode
from pilot import sql

OPEN_FOR = timedelta(hours=24)
OPEN_FOR_HUMANS = timedelta(days=7)  # on Instagram, for what a person wrote
# What a person may be sent at any time.
ALWAYS = frozenset({"template"})
# After these the record says what happened; only the first means that the window is closed.
RECORDED = frozenset({FailureCode.WINDOW_CLOSED, FailureCode.UNDELIVERABLE})
OPT_OUT_SOURCE = "provider"


class Failure(NamedTuple):
    """A message to `to` that the provider refused, with the FailureCode that it came to."""

    instance_id: int
    to: str
    code: str
    at: datetime


@dataclass(frozen=True, slots=True)
class State:
    """What is on record of a person on an instance: the last message, when the provider said that it is too late,
    and until when the rate to this person is used up."""

    received_at: datetime | None = None
    received_id: str = ""
    closed_at: datetime | None = None
    full_at: datetime | None = None

    def open_until(self, *, since: datetime, lasts: timedelta = OPEN_FOR) -> datetime:
        """When the window closes, with the margin off. Pilot knows nothing from before `since`, when the instance
        came to it: until a day has passed the provider decides."""
        begin = max(self.received_at, since) if self.received_at else since
        if self.closed_at and (self.received_at is None or self.received_at <= self.closed_at):
            return self.closed_at
        return begin + lasts - settings.WINDOW_MARGIN


UNKNOWN = State()


def applies_to(provider: str) -> bool:
    """Whether this provider has windows at all."""
    return "window" in PROVIDERS[provider].supports


def is_free_form(content: Mapping[str, object]) -> bool:
    """Whether a content needs an open window. An answer to a comment needs none."""
    return kind_of(content) not in ALWAYS and not content.get("comment")


def lasts_for(content: Mapping[str, object], *, provider: str) -> timedelta:
    """For how long after a person's message this content may be sent."""
    human = provider == Provider.INSTAGRAM and content.get("human_agent")
    return OPEN_FOR_HUMANS if human else OPEN_FOR


def paces_people(provider: str) -> bool:
    """Whether this provider limits how fast messages go to one person."""
    return "pair_rate" in PROVIDERS[provider].supports


def address_of(to: str) -> str:
    """The one form under which a person is on record, whichever way the number is written."""
    return numbers.compare_key(to) if to.startswith("+") else to


_STATES = """
SELECT wanted.instance_id, wanted.address, w.received_at, w.received_id, w.closed_at, w.full_at
FROM unnest(%s::bigint[], %s::text[]) AS wanted (instance_id, address)
JOIN messaging_window w ON w.instance_id = wanted.instance_id AND w.address = wanted.address
"""


def states_of(wanted: Collection[tuple[int, str]]) -> dict[tuple[int, str], State]:
    """By (instance, address), what is on record; UNKNOWN stands for what is not among them."""
    if not wanted:
        return {}
    rows = sql.fetch(_STATES, sql.transposed(wanted))
    return {(row[0], row[1]): State(*row[2:]) for row in rows}


_FILL = """
INSERT INTO messaging_window (instance_id, address, received_id, refused_by, full_at)
SELECT instance_id, address, '', '', full_at FROM unnest(%s::bigint[], %s::text[], %s::timestamptz[])
    AS sent (instance_id, address, full_at) ORDER BY 1, 2
ON CONFLICT (instance_id, address) DO UPDATE SET full_at = excluded.full_at
"""


def note_sent(full: Mapping[tuple[int, str], datetime]) -> None:
    """Writes down until when the rate to each person is used up. To be called under the instances' lanes."""
    if full:
        sql.execute(_FILL, sql.transposed([(*key, full_at) for key, full_at in full.items()]))


# --- what people's messages say ---------------------------------------------------------------------------

_HEAR = """
INSERT INTO messaging_window AS known (instance_id, address, received_at, received_id, refused_by)
SELECT instance_id, address, at, id, '' FROM unnest(%s::bigint[], %s::text[], %s::timestamptz[], %s::text[])
    AS heard (instance_id, address, at, id) ORDER BY 1, 2
ON CONFLICT (instance_id, address) DO UPDATE SET received_at = excluded.received_at, received_id = excluded.received_id
WHERE known.received_at IS NULL OR known.received_at < excluded.received_at
"""


class Heard(NamedTuple):
    """A person's message, and when it reached us."""

    instance: Instance
    message: InboundMessage
    at: datetime


def note_received(heard: Iterable[Heard]) -> None:
    """Opens the windows of those who wrote. A moment in the future is taken for now, or it would never close."""
    newest: dict[tuple[int, str], tuple[datetime, str]] = {}
    for instance, message, arrived_at in heard:
        if not message.opens_window:
            continue
        at = min(message.at or arrived_at, arrived_at)
        for address in _addresses(message):
            known = newest.setdefault((instance.pk, address), (at, message.provider_message_id))
            if known[0] < at:
                newest[instance.pk, address] = (at, message.provider_message_id)
    if newest:
        sql.execute(_HEAR, sql.transposed([(*key, *value) for key, value in newest.items()]))


def _addresses(message: InboundMessage) -> set[str]:
    """Everything that a message to this person may be addressed to."""
    number = address_of(message.sender_number) if message.sender_number else message.sender_id
    return {address for address in (number, message.user_id) if address}


# --- what the provider refuses ----------------------------------------------------------------------------

_CLOSE = """
INSERT INTO messaging_window AS known (instance_id, address, received_id, closed_at, refused_at, refused_by)
SELECT instance_id, address, '', CASE code WHEN 'window_closed' THEN at END, at, code
FROM unnest(%s::bigint[], %s::text[], %s::timestamptz[], %s::text[]) AS refused (instance_id, address, at, code)
ORDER BY 1, 2
ON CONFLICT (instance_id, address) DO UPDATE SET refused_at = excluded.refused_at, refused_by = excluded.refused_by,
    closed_at = coalesce(excluded.closed_at, known.closed_at)
WHERE known.refused_at IS NULL OR known.refused_at < excluded.refused_at
"""


def note_failures(failures: Sequence[Failure]) -> None:
    """Takes in refusals that say something of the person, whether they came with the answer or by webhook.

    131047 closes the window; 131026 is put on record beside it; 131050 is an opt-out. A template that was refused is
    another one than we know. Repetitions change nothing.
    """
    recorded = {
        (failure.instance_id, address_of(failure.to)): failure
        for failure in sorted(failures, key=lambda failure: failure.at)
        if failure.code in RECORDED
    }
    if recorded:
        rows = [(*key, failure.at, failure.code) for key, failure in recorded.items()]
        sql.execute(_CLOSE, sql.transposed(rows))
    outdated = {failure.instance_id for failure in failures if failure.code == FailureCode.TEMPLATE_REJECTED}
    if outdated:
        meta_templates.fetch_soon(*outdated)
    for failure in failures:
        if failure.code == FailureCode.OPTED_OUT and failure.to.startswith("+"):
            tenant = Tenant.objects.get(instances=failure.instance_id)
            opt_ins.revoke(tenant=tenant, number=failure.to, source=OPT_OUT_SOURCE, now=failure.at)
