"""Catalogues are compiled when they are missing or old, and only then."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from launcher import paths, translations
from launcher.console import Console
from launcher.errors import LauncherError


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose manage.py writes the compiled file, as the real one does."""
    source = tmp_path / "locale" / "pt_BR" / "LC_MESSAGES" / "django.po"
    source.parent.mkdir(parents=True)
    source.write_text("")
    program = f"from pathlib import Path\nPath({str(source.with_suffix('.mo'))!r}).write_text('compiled')\n"
    (tmp_path / "manage.py").write_text(program)
    monkeypatch.setattr(paths, "REPO", tmp_path)
    monkeypatch.setattr(paths, "python", lambda: sys.executable)
    return source.with_suffix(".mo")


def ensure() -> None:
    translations.ensure(Console(), os.environ)


def test_compiles_what_is_missing(catalogue: Path) -> None:
    ensure()

    assert catalogue.read_text() == "compiled"


def test_compiles_what_is_older_than_its_source(catalogue: Path) -> None:
    catalogue.write_text("old")
    os.utime(catalogue, (0, 0))

    ensure()

    assert catalogue.read_text() == "compiled"


def test_leaves_alone_what_is_up_to_date(catalogue: Path) -> None:
    catalogue.write_text("kept")
    os.utime(catalogue.with_suffix(".po"), (0, 0))

    ensure()

    assert catalogue.read_text() == "kept"


def test_says_what_went_wrong(catalogue: Path) -> None:
    (paths.REPO / "manage.py").write_text("raise SystemExit('no such plural')")

    with pytest.raises(LauncherError, match="no such plural"):
        ensure()
