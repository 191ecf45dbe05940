"""News of an account from its provider, beside its connection: kept in the instance's history, and acted on.

template_status · template_quality · template_category     the template on record follows, and is synced again
number_quality · number_name · account_update · …          told in the history
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from instances import meta_templates, status
from instances.models import Instance, MetaTemplate
from instances.providers.base import Notice

# Where Meta says it: the template's column with its length, and the name in its news.
FOLLOWED: Mapping[str, tuple[str, int, str]] = {
    "template_status": ("status", 30, "event"),
    "template_quality": ("quality", 20, "new_quality_score"),
    "template_category": ("category", 20, "new_category"),
}
LONGEST_WORD = 200


class Told(NamedTuple):
    """A notice about an instance, and when it reached us."""

    instance: Instance
    notice: Notice
    at: datetime


def apply(told: Sequence[Told]) -> None:
    """Takes notices in, in their order. A repetition is a second line in the history and changes nothing else."""
    for instance, notice, at in told:
        if notice.kind in FOLLOWED:
            _follow(instance, notice)
        words = _words(notice.detail)
        detail = {"reason": ", ".join(words.values())[:LONGEST_WORD]} | words
        status.note(instance_id=instance.pk, kind=notice.kind, at=at, detail=detail)


def _follow(instance: Instance, notice: Notice) -> None:
    meta_templates.fetch_soon(instance.pk)
    column, most, name = FOLLOWED[notice.kind]
    word = notice.detail.get(name)
    if not isinstance(word, str):
        return
    known = MetaTemplate.objects.filter(
        instance=instance,
        name=str(notice.detail.get("message_template_name", "")),
        language=str(notice.detail.get("message_template_language", "")),
    )
    known.update(**{column: word[:most]})


def _words(detail: Mapping[str, Any]) -> dict[str, str]:
    """What can be shown on a line: texts and numbers."""
    return {
        name: str(value)[:LONGEST_WORD]
        for name, value in detail.items()
        if isinstance(value, str | int | float)
    }
