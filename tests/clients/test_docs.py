"""What docs/api.md and the README of the Python client say: their commands run, and their tables are complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.urls import get_resolver
from rest_framework.exceptions import APIException

from accounts.models import Scope
from instances.connecting import EXPLANATIONS, ConnectingError
from messaging.models import FailureCode, Status
from pilot.errors import PilotError
from pilot.refusing import CODES
from tests.clients.conftest import Account

ROOT = Path(settings.BASE_DIR)
GUIDE = (ROOT / "docs/api.md").read_text()
PAGES = {"api.md": GUIDE, "README.md": (ROOT / "clients/python/README.md").read_text()}
BLOCKS = [
    pytest.param(language, block, id=f"{page}-{place}")
    for page, text in PAGES.items()
    for place, (language, block) in enumerate(re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL))
]
RUNNERS = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
# Those that only a form of the dashboard meets.
DASHBOARD = {"already_linked", "already_purging", "created_before", "issued_before"}
# Those that are no exception's: pilot/errors.py.
OTHERS = {("bad_request", 400), ("internal", 500), ("unavailable", 503)}


@pytest.mark.parametrize(("language", "block"), BLOCKS)
def test_its_commands_run(server: str, account: Account, language: str, block: str) -> None:
    own = {"PILOT": server, "KEY": account.raw, "PYTHONPATH": str(ROOT / "clients/python")}
    ran = subprocess.run(
        [*RUNNERS[language], block], env=os.environ | own, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout
    assert '{"error"' not in ran.stdout, ran.stdout


def test_lists_every_error_code_with_its_status() -> None:
    assert set(_documented()) == set(_answered())


def test_explains_every_state_failure_and_scope() -> None:
    words = set(re.findall(r"`([a-z_:]+)`", GUIDE))
    assert {*Status.values, *FailureCode.values, *Scope.values} <= words


def _documented() -> Iterator[tuple[str, int]]:
    section = GUIDE.partition("## Errors")[2].partition("\n## ")[0]
    for statuses, codes in re.findall(r"^\| ([\d, ]+) \| (.*?) \|", section, re.MULTILINE):
        yield from (
            (code, int(status)) for code in re.findall(r"`(\w+)`", codes) for status in statuses.split(",")
        )


def _answered() -> Iterator[tuple[str, int]]:
    assert get_resolver().url_patterns  # everything that answers is imported
    yield from OTHERS
    yield from ((code, kind.status_code) for kind, code in CODES.items())
    yield from ((code, ConnectingError.status) for code in EXPLANATIONS)
    for kind in _kinds(PilotError):
        if kind is not ConnectingError and kind.code not in DASHBOARD:
            yield kind.code, kind.status
    yield from ((kind.default_code, kind.status_code) for kind in _kinds(APIException))


def _kinds(base: Any) -> Iterator[Any]:
    """Its subclasses, without those of the framework and of tests."""
    for kind in base.__subclasses__():
        if not kind.__module__.startswith(("rest_framework.", "tests.")):
            yield kind
        yield from _kinds(kind)
