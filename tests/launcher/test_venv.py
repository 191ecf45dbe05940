"""The virtual environment of a clone whose requirements are empty, so that no registry is asked."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from launcher import paths, venv
from launcher.console import Console
from launcher.errors import LauncherError
from launcher.venv import PipProgress


@pytest.fixture
def bare_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone without a virtual environment, on a machine with pip but without ensurepip as Debian's."""
    monkeypatch.setattr(venv, "_has", lambda module: module == "pip")
    (tmp_path / "requirements-dev.txt").touch()
    monkeypatch.setattr(paths, "REPO", tmp_path)
    monkeypatch.setattr(paths, "home", lambda: tmp_path)
    return tmp_path


def test_makes_it_once_and_again_only_when_requirements_change(
    bare_clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    venv.ensure(Console())
    assert "installed in" in capsys.readouterr().out
    assert os.access(bare_clone / ".venv" / "bin" / "python", os.X_OK)

    venv.ensure(Console())
    assert capsys.readouterr().out == ""

    (bare_clone / "requirements.txt").write_text("# changed\n")
    venv.ensure(Console())
    assert "installed in" in capsys.readouterr().out


def test_needs_no_ensurepip(bare_clone: Path) -> None:
    venv.ensure(Console())

    assert not list(bare_clone.glob(".venv/lib/python3*/site-packages/pip"))


def test_asks_for_pip_where_there_is_none(bare_clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(venv, "_has", lambda module: False)

    with pytest.raises(LauncherError, match="install the package python3-pip"):
        venv.ensure(Console())


def test_shows_what_pip_said_when_it_fails(bare_clone: Path) -> None:
    (bare_clone / "requirements-dev.txt").write_text("-r no-such-file.txt\n")

    with pytest.raises(LauncherError, match=r"no-such-file\.txt"):
        venv.ensure(Console())

    assert not (bare_clone / ".venv" / "pilot-stamp").exists()


def test_makes_it_anew_when_its_python_is_gone(bare_clone: Path) -> None:
    venv.ensure(Console())
    python = bare_clone / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nonexistent/python3")

    venv.ensure(Console())

    assert os.access(python, os.X_OK)


def test_tells_how_far_pip_is(tmp_path: Path) -> None:
    progress = PipProgress(tmp_path)
    for line in ("Collecting Django==5.2.19", "  Downloading django.whl (8 MB)", "Collecting celery==5.7.0"):
        progress.feed(line)
    assert progress.text().startswith("fetching 2 packages")

    progress.feed("Installing collected packages: sqlparse, Django, celery")
    (tmp_path / "lib/python3.11/site-packages/sqlparse-1.dist-info").mkdir(parents=True)
    assert progress.text() == "unpacking 3 packages, 1 there"


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "HOME"])
def test_goes_to_the_cache_when_the_checkout_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setattr(paths, "_writable", lambda directory: False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))

    home = paths.home.__wrapped__()

    assert home.is_relative_to(tmp_path)
    assert home.is_dir()


def test_goes_to_a_private_temporary_directory_without_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "_writable", lambda directory: False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    home = paths.home.__wrapped__()

    assert home.parent == tmp_path
    assert home.stat().st_mode & 0o777 == 0o700
    home.chmod(0o755)
    with pytest.raises(SystemExit, match="not a private directory"):
        paths.home.__wrapped__()
    shutil.rmtree(home)
