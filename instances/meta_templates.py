"""Meta's templates of a linked number: fetched from time to time, and looked at before a message is accepted.

Meta refuses a template that is not approved, or values that do not fit it, only when it is sent; what is on record
says so at once. A number whose templates were never fetched is not checked.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import transaction
from django.db.models import F, Q
from django.utils.translation import gettext as _

from instances.models import Instance, InstanceStatus, MetaTemplate, Provider
from instances.providers import META
from instances.providers.base import ProviderError
from instances.providers.http import perform

log = structlog.get_logger(__name__)

MOST_PAGES = 100  # of a hundred templates
SENDABLE = frozenset({"APPROVED"})
PLACE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
FILES = {"IMAGE": "image", "VIDEO": "video", "DOCUMENT": "document", "LOCATION": "location"}
FETCH_AFTER = timedelta(hours=1)
RUN_AT_ONCE = 20

Described = Mapping[str, Any]


# --- fetching ---------------------------------------------------------------------------------------------


def fetch_due(*, now: datetime) -> dict[str, int]:
    """Fetches the templates of numbers whose last fetch is longest ago, a few at a time. Returns counts."""
    due = Instance.objects.filter(
        Q(templates_fetched_at=None) | Q(templates_fetched_at__lte=now - FETCH_AFTER),
        provider=Provider.META,
        status=InstanceStatus.OPEN,
    )
    counts = {"fetched": 0, "failed": 0}
    for instance in due.order_by(F("templates_fetched_at").asc(nulls_first=True))[:RUN_AT_ONCE]:
        counts["fetched" if _try_to_fetch(instance, now) else "failed"] += 1
    return counts


def fetch_soon(*instance_ids: int) -> None:
    """What is on record is out of date: the next round fetches it again, within five minutes."""
    Instance.objects.filter(pk__in=instance_ids).update(templates_fetched_at=None)


def _try_to_fetch(instance: Instance, now: datetime) -> bool:
    try:
        fetch(instance, now=now)
    except ProviderError as error:
        log.info("templates.not_fetched", instance_id=instance.pk, code=error.code)
        return False
    return True


def fetch(instance: Instance, *, now: datetime) -> int:
    """Brings what is on record to what Meta says now. Returns how many there are. Raises ProviderError."""
    rows = [row for described in _all(instance) if (row := _row(instance, described, now))]
    with transaction.atomic():
        MetaTemplate.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["instance", "name", "language"],
            update_fields=["category", "status", "quality", "parameter_format", "components", "synced_at"],
        )
        MetaTemplate.objects.filter(instance=instance, synced_at__lt=now).delete()
        Instance.objects.filter(pk=instance.pk).update(templates_fetched_at=now)
    return len(rows)


def _all(instance: Instance) -> Iterator[Described]:
    account, after = instance.account(), ""
    for _page in range(MOST_PAGES):
        page, after = perform(META.templates(account, after=after))
        yield from page
        if not after:
            return


def _row(instance: Instance, described: Described, now: datetime) -> MetaTemplate | None:
    """A template as Meta describes it; None for one without a name or a language."""
    name, language = described.get("name"), described.get("language")
    if not isinstance(name, str) or not isinstance(language, str):
        return None
    quality = described.get("quality_score")
    components = described.get("components")
    return MetaTemplate(
        instance=instance,
        name=name[:512],
        language=language[:20],
        category=str(described.get("category") or "")[:20],
        status=str(described.get("status") or "")[:30],
        quality=str(quality.get("score") or "")[:20] if isinstance(quality, dict) else "",
        parameter_format=str(described.get("parameter_format") or "POSITIONAL")[:20],
        components=components if isinstance(components, list) else [],
        synced_at=now,
    )


# --- checking ---------------------------------------------------------------------------------------------


def faults(instance: Instance, content: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with a template to be sent from `instance`, a sentence for each part of the content."""
    known = _known(instance.pk, content["name"])
    if known is None:
        return {}
    template = known.get(content["language"])
    if template is None:
        return _unknown(known)
    if template.status not in SENDABLE:
        return {"name": _("Meta has it as %(status)s.") % {"status": template.status}}
    return _misfits(template, content.get("components", ()))


KEPT_SECONDS = 5.0  # how long a change may go unnoticed; many messages in a row name the same template
MOST_KEPT = 10_000
_kept: dict[tuple[int, str], tuple[float, Mapping[str, MetaTemplate] | None]] = {}


def _known(instance_id: int, name: str) -> Mapping[str, MetaTemplate] | None:
    """The templates of that name by language; None where none was ever fetched for the instance."""
    until, known = _kept.get((instance_id, name), (0.0, None))
    if time.monotonic() < until:
        return known
    known = {row.language: row for row in MetaTemplate.objects.filter(instance=instance_id, name=name)}
    if not known and not MetaTemplate.objects.filter(instance=instance_id).exists():
        known = None
    if len(_kept) >= MOST_KEPT:
        _kept.clear()
    _kept[instance_id, name] = (time.monotonic() + KEPT_SECONDS, known)
    return known


def forget() -> None:
    """Empties the memory, for whoever just changed a template and cannot wait."""
    _kept.clear()


def _unknown(known: Mapping[str, MetaTemplate]) -> dict[str, str]:
    if known:
        languages = ", ".join(sorted(known))
        return {"language": _("This template exists in: %(languages)s.") % {"languages": languages}}
    return {"name": _("The account has no template of that name.")}


def _misfits(template: MetaTemplate, given: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    parts = {part["type"]: part.get("parameters", ()) for part in given if part["type"] != "button"}
    sentences = [
        sentence
        for component in template.components
        if isinstance(component, dict)
        and (sentence := _misfit(component, template, parts.get(_kind(component), ())))
    ]
    return {"components": " ".join(sentences)} if sentences else {}


def _kind(component: Described) -> str:
    return str(component.get("type", "")).lower()


def _misfit(component: Described, template: MetaTemplate, parameters: Sequence[Mapping[str, Any]]) -> str:
    """What the values of one part lack; empty when they fit."""
    kind = _kind(component)
    file = FILES.get(str(component.get("format"))) if kind == "header" else None
    if file:
        fits = [parameter["type"] for parameter in parameters] == [file]
        return "" if fits else _("The header needs a parameter of type %(type)s.") % {"type": file}
    if kind not in {"header", "body"}:
        return ""
    places = list(dict.fromkeys(PLACE.findall(str(component.get("text") or ""))))
    if len(places) != len(parameters):
        numbers = {"part": kind, "wanted": len(places), "given": len(parameters)}
        return _("The %(part)s needs %(wanted)s parameters, not %(given)s.") % numbers
    return _misnamed(kind, places, parameters) if template.parameter_format == "NAMED" else ""


def _misnamed(kind: str, places: Sequence[str], parameters: Sequence[Mapping[str, Any]]) -> str:
    names = {parameter.get("parameter_name") for parameter in parameters}
    if names == set(places):
        return ""
    wanted = {"part": kind, "names": ", ".join(places)}
    return _("The %(part)s needs the parameter names %(names)s.") % wanted
