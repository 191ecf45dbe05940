"""Templates: made, changed by adding versions, published and archived. A version never changes once it is there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from accounts.models import Project
from messaging.content import TEXT, kind_of
from messaging.models import Category, Template, TemplateStatus, TemplateVersion
from messaging.rendering import render, validate_template, variables_of
from pilot.errors import PilotError

NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
LONG_TEXT = 1000  # characters; more is folded behind "read more"
SHORTENED = re.compile(r"\b(bit\.ly|tinyurl\.com|goo\.gl|t\.co|is\.gd|encurtador\.com\.br)/", re.IGNORECASE)
AT_AN_END = re.compile(r"\A\s*\{\{|\}\}\s*\Z")
WAY_OUT = re.compile(r"\b(parar|sair|descadastrar|cancelar|stop|unsubscribe|baja)\b", re.IGNORECASE)


class NameTaken(PilotError):
    """The project has a template of that name, perhaps an archived one."""

    code = "name_taken"
    status = 409


class BadName(PilotError):
    """A name that could not stand in an address."""

    code = "bad_name"


class UnknownVersion(PilotError):
    """The template has no version of that number."""

    code = "unknown_version"
    status = 404


@dataclass(frozen=True, slots=True)
class Preview:
    """A version with values for its variables: the content as it would be sent, the characters of its text, and what
    may keep it from being read or delivered, as sentences."""

    content: Mapping[str, Any]
    length: int
    warnings: list[str]


def create(
    *, project: Project, name: str, category: str, content: Mapping[str, Any], publish: bool = True
) -> Template:
    """A template with its first version, which can be sent at once unless `publish` is false.

    Raises BadName, NameTaken or InvalidContent.
    """
    if not NAME.fullmatch(name):
        fault = _("Only letters, digits, hyphens and underscores, at most 80.")
        raise BadName(_("This cannot be a template's name."), fields={"name": [fault]})
    validate_template(content)
    with transaction.atomic():
        values = {"tenant_id": project.tenant_id, "category": Category(category)}
        template, made = Template.objects.get_or_create(project=project, name=name, defaults=values)
        if not made:
            fault = _("A template is called “%(name)s” already.") % {"name": name}
            raise NameTaken(fault, fields={"name": [fault]})
        _add(template, number=1, content=content, publish=publish)
    return template


def add_version(template: Template, *, content: Mapping[str, Any], publish: bool = False) -> TemplateVersion:
    """One more version; messages keep the one they were made from. Raises InvalidContent."""
    validate_template(content)
    with transaction.atomic():
        Template.objects.select_for_update().get(pk=template.pk)  # numbers have no gaps and no twins
        latest = template.versions.order_by("-number").values_list("number", flat=True).first() or 0
        return _add(template, number=latest + 1, content=content, publish=publish)


def publish(template: Template, *, number: int) -> TemplateVersion:
    """From now on messages are made from version `number`, an earlier one perhaps. Raises UnknownVersion."""
    version = version_of(template, number)
    _make_current(template, version)
    return version


def archive(template: Template) -> bool:
    """Nothing is made from it any more; what waits is still sent. False when it was archived before."""
    return _set_status(template, TemplateStatus.ARCHIVED)


def restore(template: Template) -> bool:
    """Undoes archive(). False when it was not archived."""
    return _set_status(template, TemplateStatus.ACTIVE)


def preview(template: Template, *, variables: Mapping[str, Any], number: int | None = None) -> Preview:
    """Version `number`, or the current one, with these values. Raises UnknownVersion or InvalidVariables."""
    version = template.current_version if number is None else version_of(template, number)
    if version is None:
        raise UnknownVersion(_("The template has no published version."))
    content = render(version.content, variables)
    text = str(content.get("text", ""))
    return Preview(content, len(text), _warnings(version.content, text, category=template.category))


def version_of(template: Template, number: int) -> TemplateVersion:
    """Raises UnknownVersion."""
    version = template.versions.filter(number=number).first()
    if version is None:
        raise UnknownVersion(_("The template has no version %(number)s.") % {"number": number})
    return version


def _add(template: Template, *, number: int, content: Mapping[str, Any], publish: bool) -> TemplateVersion:
    version = TemplateVersion.objects.create(
        template=template, number=number, content=content, variables=variables_of(content)
    )
    if publish:
        _make_current(template, version)
    return version


def _make_current(template: Template, version: TemplateVersion) -> None:
    template.current_version = version
    template.save(update_fields=["current_version"])


def _set_status(template: Template, status: TemplateStatus) -> bool:
    changed = Template.objects.filter(pk=template.pk).exclude(status=status).update(status=status)
    template.status = status
    return bool(changed)


def _warnings(source: Mapping[str, Any], text: str, *, category: str) -> list[str]:
    """What WhatsApp's users complain of most, or its reviewers refuse."""
    if kind_of(source) != TEXT:
        return []
    marketing = category == Category.MARKETING
    found = {
        _("The text is long: people see “read more” after about 1,000 characters."): len(text) > LONG_TEXT,
        _("Shortened links look like fraud, to people and to filters: write the whole address."): bool(
            SHORTENED.search(text)
        ),
        _("A text that begins or ends with a variable is often refused by WhatsApp."): bool(
            AT_AN_END.search(str(source.get("text", "")))
        ),
        _("Marketing should say how to stop it, such as “Reply STOP”."): marketing
        and not WAY_OUT.search(text),
    }
    return [sentence for sentence, applies in found.items() if applies]
