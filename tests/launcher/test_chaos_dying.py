"""Dying at a named step: fuses, what counts as getting there, and that every step is still in the product."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from launcher import paths
from launcher.chaos import dying
from launcher.chaos.dying import STEPS, Fuses, Step


class Deaths:
    """Counts instead of dying."""

    def __init__(self, directory: Path) -> None:
        self.count = 0
        self.fuses = Fuses(directory, die=self._die)

    def _die(self) -> None:
        self.count += 1


@pytest.fixture
def deaths(tmp_path: Path) -> Deaths:
    return Deaths(tmp_path)


def test_lives_without_a_fuse_and_past_other_steps(deaths: Deaths, tmp_path: Path) -> None:
    deaths.fuses.reach("claim")
    (tmp_path / "settle").write_text("1")
    deaths.fuses.reach("claim")

    assert deaths.count == 0


def test_dies_at_the_wanted_time_and_once(deaths: Deaths, tmp_path: Path) -> None:
    (tmp_path / "claim").write_text("3")

    counts = []
    for _ in range(5):
        deaths.fuses.reach("claim")
        counts.append(deaths.count)

    assert counts == [0, 0, 1, 1, 1]
    assert not (tmp_path / "claim").exists()


def claim(found: Sequence[int]) -> int:
    """Stands for a function of the product."""
    return len(found)


async def call(found: Sequence[int]) -> int:
    """The same, for functions that wait."""
    return len(found)


@pytest.mark.parametrize(
    ("step", "found", "dies"),
    [
        (Step("worker", f"{__name__}:claim"), [1], True),
        (Step("worker", f"{__name__}:claim"), [], False),
        (
            Step("worker", f"{__name__}:claim", before=True, counts=lambda arguments: bool(arguments[0])),
            [1],
            True,
        ),
        (
            Step("worker", f"{__name__}:claim", before=True, counts=lambda arguments: bool(arguments[0])),
            [],
            False,
        ),
        (Step("worker", f"{__name__}:call"), [1], True),
        (Step("worker", f"{__name__}:call"), [], False),
        (
            Step("worker", f"{__name__}:call", before=True, counts=lambda arguments: bool(arguments[0])),
            [1],
            True,
        ),
    ],
)
def test_a_wrapped_function_does_its_work_and_burns_the_fuse_when_it_is_the_real_thing(
    step: Step, found: list[int], dies: bool, deaths: Deaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules[__name__]
    name = step.function.partition(":")[2]
    monkeypatch.setattr(module, name, getattr(module, name))  # so that it is put back
    (tmp_path / "here").write_text("1")

    dying.wrap("here", step, deaths.fuses)
    result = getattr(module, name)(found)

    assert (asyncio.run(result) if asyncio.iscoroutine(result) else result) == len(found)
    assert deaths.count == dies


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_every_step_is_a_function_of_the_product(step: Step) -> None:
    owner, attribute = dying._find(step.function)

    assert callable(getattr(owner, attribute))


@pytest.mark.parametrize(
    ("counts", "given", "expected"),
    [
        (dying._sends, ("http", SimpleNamespace(sends=False)), False),
        (dying._sends, ("http", SimpleNamespace(sends=True)), True),
        (dying._answers_send, (SimpleNamespace(url="http://e/message/sendText/a"),), True),
        (dying._answers_send, (SimpleNamespace(url="http://e/chat/findMessages/a"),), False),
        (dying._added_entries, [b"1795985733670-0"], True),
        (dying._added_entries, [3, b"OK"], False),
    ],
)
def test_knows_the_real_thing(counts: Any, given: Any, expected: bool) -> None:
    assert counts(given) is expected


def test_a_process_runs_as_ever_until_it_gets_to_its_step(tmp_path: Path) -> None:
    """`manage.py consume` numbers events; with a fuse it does not survive the first time that it found some."""
    untouched = _run_manage(tmp_path, "check")
    (tmp_path / "before_command").write_text("1")

    assert untouched.returncode == 0, untouched.stderr
    assert _run_manage(tmp_path, "check", step="before_command").returncode == -signal.SIGKILL


def _run_manage(directory: Path, command: str, *, step: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a command of manage.py under launcher.chaos.dying, with a step of its own if one is named."""
    extra = (
        "from launcher.chaos import dying;"
        f"dying.STEPS = {{{step!r}: dying.Step('web', 'django.core.checks:run_checks', before=True,"
        " counts=dying._always)};"
        if step
        else "from launcher.chaos import dying;"
    )
    main = f"{extra} dying.main(['web', {str(directory)!r}, '--', 'manage.py', {command!r}])"
    env = os.environ | {"PYTHONPATH": str(paths.REPO / "bin"), "DJANGO_SETTINGS_MODULE": "pilot.settings"}
    return subprocess.run(
        [sys.executable, "-c", main], cwd=paths.REPO, env=env, capture_output=True, text=True, check=False
    )
