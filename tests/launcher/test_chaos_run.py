"""A small chaos run with everything real: processes, servers, HTTP, kill -9."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher import throwaway
from launcher.chaos import dying, schedule
from launcher.chaos.run import Run
from launcher.chaos.schedule import Fault, Plan
from launcher.console import Console
from launcher.state import State

# Faults that the product is over within seconds: no answer of a provider is lost.
FAULTS = (
    Fault(at=1.0, kind="redis_flushed"),
    Fault(at=1.5, kind="die", process="web", detail={"step": "before_accept_is_answered", "after": 2}),
    Fault(at=2.5, kind="die", process="consume", detail={"step": "before_news_commits", "after": 1}),
    Fault(at=3.0, kind="postgres_crashed"),
)


@pytest.fixture
def directory() -> Iterator[Path]:
    with throwaway.workspace() as directory:
        yield directory


@pytest.mark.timeout(180)
def test_keeps_every_promise_when_processes_and_servers_are_killed(directory: Path) -> None:
    steps = dying.process_of_steps()
    requests = schedule.plan(seed=11, messages=60, faults=1, seconds=6, steps=steps).requests
    run = Run(Plan(11, 6, requests, FAULTS), State(directory / "chaos"), Console())

    report = run.run()

    assert report.problems() == [], (directory / "chaos/logs/findings.log").read_text()
    line = json.loads(report.line())
    assert line["accepted"] + report.refused == 60
    assert line["delivered"] > 40
    assert line["faults"] == len(FAULTS)
    assert run.fleet.deaths["web"] == 1
    assert run.fleet.deaths["consume"] == 1
