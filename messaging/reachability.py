"""Whether a telephone is on WhatsApp, as far as is known. Nobody is asked: looking many up gets a number banned."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from accounts.models import ApiKey
from messaging import numbers
from messaging.models import Contact, FailureCode, Status
from pilot import sql

# Messages looked at: they have no index by number, and a check must cost about the same for everyone.
RECENT = 10_000
ARRIVED = (Status.DELIVERED, Status.READ, Status.PLAYED)
# Not by a join with the recent ids: the planner may read the whole table for it.
_OUTCOMES = """
SELECT "to", status FROM (
    SELECT "to", status, failure_code, created_at, id FROM messaging_message
    WHERE tenant_id = %s AND environment = %s ORDER BY created_at DESC, id DESC LIMIT %s
) AS recent
WHERE "to" = ANY(%s) AND (status = ANY(%s) OR failure_code = %s)
ORDER BY created_at, id
"""


def known(*, key: ApiKey, wanted: Collection[str]) -> dict[str, bool]:
    """Which of these E.164 numbers are on WhatsApp and which are not; a number that nothing is known of is missing.

    The newest message to it that arrived, or failed because nobody is there, decides, among the last RECENT that the
    tenant sent in the environment of `key`. Otherwise a contact whom WhatsApp named an id for is there.
    """
    answers = {numbers.variants(number)[0]: True for number in _contacts(key.tenant_id, wanted)}
    for to, status in _outcomes(key, wanted):  # oldest first: the newest has the last word
        answers[numbers.variants(to)[0]] = status != Status.FAILED
    return answers


def _contacts(tenant_id: int, wanted: Iterable[str]) -> Iterable[str]:
    rows = Contact.objects.filter(tenant_id=tenant_id, number__in=_spellings(wanted)).exclude(recipient_id="")
    return rows.values_list("number", flat=True)


def _outcomes(key: ApiKey, wanted: Iterable[str]) -> list[tuple[str, str]]:
    scope = [key.tenant_id, key.environment, RECENT]
    telling = [_spellings(wanted), list(ARRIVED), FailureCode.NOT_ON_WHATSAPP]
    return [(to, status) for to, status in sql.fetch(_OUTCOMES, [*scope, *telling])]


def _spellings(wanted: Iterable[str]) -> list[str]:
    return [spelling for number in wanted for spelling in numbers.variants(number)]
