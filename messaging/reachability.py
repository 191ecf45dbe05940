"""Whether a telephone is on WhatsApp, as far as is known. Nobody is asked: looking many up gets a number banned."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from django.db.models import Q

from accounts.models import ApiKey
from messaging import numbers
from messaging.models import Contact, FailureCode, Message, Status

RECENT = (
    10_000  # messages looked at: they have no index by number, and a check must cost the same for everyone
)
ARRIVED = (Status.DELIVERED, Status.READ, Status.PLAYED)


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
    sent = Message.objects.filter(tenant_id=key.tenant_id, environment=key.environment)
    recent = sent.order_by("-created_at", "-id").values("pk")[:RECENT]
    telling = Q(status__in=ARRIVED) | Q(failure_code=FailureCode.NOT_ON_WHATSAPP)
    told = Message.objects.filter(telling, pk__in=recent, to__in=_spellings(wanted))
    return list(told.order_by("created_at", "id").values_list("to", "status"))


def _spellings(wanted: Iterable[str]) -> list[str]:
    return [spelling for number in wanted for spelling in numbers.variants(number)]
