"""bin/test and bin/check in the stand-in clone."""

from __future__ import annotations

import signal
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launcher.throwaway import PREFIX

from tests.launcher.conftest import Clone

ENGINES = """
import os
import psycopg
import redis

def test_throw_away_servers_answer():
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("off",)
    assert redis.Redis.from_url(os.environ["REDIS_URL"]).ping()
    assert os.listdir(os.environ["PILOT_TEST_ENGINES"]) == []
    assert "EVOLUTION_URL" not in os.environ
"""
ELSEWHERE = {"DATABASE_URL": "postgres://elsewhere/pilot", "REDIS_URL": "redis://elsewhere"}
FAILING = "def test_fails():\n    assert False\n"
ENDLESS = """
import time

def test_never_ends():
    print("waiting", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def suite(clone: Clone, tmp_path: Path) -> Iterator[Callable[[str], list[str]]]:
    """Writes a test file for the clone and returns the command that runs it; checks that data vanished."""
    file = clone.root / "suite.py"

    def write(content: str) -> list[str]:
        file.write_text(textwrap.dedent(content))
        return ["test", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:django", "suite.py"]

    yield write
    file.unlink()
    assert list(tmp_path.glob(f"{PREFIX}*")) == []


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_directory: Path) -> None:
    """Lets the commands make their temporary directories where the test can see them."""
    for directory in (tmp_path, *tmp_path.parents[:2]):
        directory.chmod(0o755)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def test_gives_tests_servers_of_their_own(clone: Clone, suite: Callable[[str], list[str]]) -> None:
    done = clone.run(*suite(ENGINES), EVOLUTION_URL="https://whatsapp.example")

    assert done.code == 0, done.output
    assert "1 passed" in done.output


def test_passes_on_the_exit_code_of_pytest(clone: Clone, suite: Callable[[str], list[str]]) -> None:
    done = clone.run(*suite(FAILING), **ELSEWHERE)

    assert done.code == 1
    assert "1 failed" in done.output


def test_removes_its_data_when_stopped(clone: Clone, suite: Callable[[str], list[str]]) -> None:
    launch = clone.start(*suite(ENDLESS))
    launch.wait_for("waiting")

    launch.stop(signal.SIGTERM)

    assert launch.code == 130
    assert "KeyboardInterrupt" in launch.output


def test_check_goes_through_all_steps_and_names_those_that_failed(clone: Clone) -> None:
    wrong = clone.root / "wrong.py"
    wrong.write_text("import os\n")

    done = clone.run("check", **ELSEWHERE)

    wrong.unlink()
    assert done.code == 1
    assert "`os` imported but unused" in done.output
    assert "migrations   ok" in done.output
    assert "Failed: lint, " in done.output


def test_check_fix_repairs_what_ruff_can(clone: Clone) -> None:
    wrong = clone.root / "wrong.py"
    wrong.write_text("import os\nprint( 'x' )\n")

    clone.run("check", "--fix", **ELSEWHERE)

    repaired = wrong.read_text()
    wrong.unlink()
    assert repaired == 'print("x")\n'
