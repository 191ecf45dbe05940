"""The Portuguese texts: complete, well-formed, and used."""

from __future__ import annotations

import gettext
import re
from pathlib import Path

import pytest
from babel.messages.catalog import Message
from babel.messages.mofile import read_mo
from babel.messages.pofile import read_po
from django.conf import settings
from django.db.models import TextChoices
from django.utils import translation
from django.utils.translation import trans_real

from accounts.models import KeyState, Role, Scope
from instances.models import InstanceStatus
from messaging.models import Category, FailureCode, Status
from pilot.management.commands.compile_translations import compile_catalogue

TEMPLATES = Path(settings.BASE_DIR) / "templates"
TRANSLATED = re.compile(r"""{%\s*translate\s+(["'])(.+?)\1""")
SAME = {"Marketing", "E-mail", "Id", "URL", "Webhooks"}  # the same word in both languages
SOURCE = Path(settings.LOCALE_PATHS[0]) / "pt_BR" / "LC_MESSAGES" / "django.po"
PLACES = re.compile(r"%\(\w+\)\w|(?<!\{)\{\w*\}(?!\})")


def _catalogue() -> list[Message]:
    with SOURCE.open("rb") as lines:
        return [message for message in read_po(lines, locale="pt_BR") if message.id]


def _texts(value: str | list[str] | tuple[str, ...]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def test_leaves_no_text_untranslated() -> None:
    messages = _catalogue()

    assert len(messages) > 300
    assert not [message.id for message in messages if message.fuzzy or not all(_texts(message.string))]


def test_keeps_the_places_of_values() -> None:
    for message in _catalogue():
        places = {frozenset(PLACES.findall(text)) for text in _texts(message.id)}
        assert {frozenset(PLACES.findall(text)) for text in _texts(message.string)} == places, message.id


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue as bin/test leaves it, whatever was loaded before."""
    compile_catalogue(SOURCE)
    monkeypatch.setattr(trans_real, "_translations", {})
    monkeypatch.setattr(gettext, "_translations", {})


@pytest.mark.usefixtures("compiled")
def test_knows_every_text_that_templates_ask_for() -> None:
    asked = {
        text for path in TEMPLATES.rglob("*.html") for _quote, text in TRANSLATED.findall(path.read_text())
    }

    assert len(asked) > 100
    with translation.override("pt-br"):
        assert sorted(text for text in asked - SAME if translation.gettext(text) == text) == []


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("choices", [Status, FailureCode, InstanceStatus, KeyState, Role, Scope, Category])
def test_speaks_portuguese(choices: type[TextChoices]) -> None:
    with translation.override("en"):
        english = [str(choice.label) for choice in choices]
    with translation.override("pt-br"):
        portuguese = [str(choice.label) for choice in choices]

    assert not set(english) & set(portuguese) - SAME


def test_compiles_only_what_changed(tmp_path: Path) -> None:
    source = tmp_path / "django.po"
    source.write_bytes(SOURCE.read_bytes())

    assert compile_catalogue(source)
    assert not compile_catalogue(source)

    with source.with_suffix(".mo").open("rb") as lines:
        assert read_mo(lines).get("Read", None).string == "Lida"
