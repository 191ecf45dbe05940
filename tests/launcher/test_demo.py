"""What bin/run reads from the product's answers and shows of them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from launcher.demo import Demo, timeline_line
from launcher.health import kinds_without_progress

ACCOUNT = {
    "email": "demo@example.com",
    "password": "secret",
    "api_key": "key-1",
    "to": "5511999990000",
    "template": "welcome",
    "variables": {"name": "D'Ávila"},
    "instance": {"name": "demo"},
    "added_later": True,
}


def test_curl_line_sends_the_demo_message(tmp_path: Path) -> None:
    file = tmp_path / "demo.json"
    file.write_text(json.dumps(ACCOUNT))

    words = shlex.split(Demo.load(file).curl("http://127.0.0.1:8000"))

    assert words[:3] == ["curl", "-s", "http://127.0.0.1:8000/api/messages"]
    assert "apikey: key-1" in words
    assert json.loads(words[-1]) == {
        "to": "5511999990000",
        "template": "welcome",
        "variables": {"name": "D'Ávila"},
        "urgent": True,
    }


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"kind": "queued", "status": "queued"}, "      +1.500 s  queued"),
        (
            {"kind": "held", "status": "queued", "detail": {"gate": "pace"}},
            '      +1.500 s  held          queued  {"gate": "pace"}',
        ),
        ({"kind": "typing", "status": None, "detail": "3 s"}, "      +1.500 s  typing        3 s"),
    ],
)
def test_timeline_has_a_line_per_event(event: dict[str, Any], line: str) -> None:
    assert timeline_line(event, 1.5) == line


@pytest.mark.parametrize(
    ("processes", "missing"),
    [
        ([], ["worker", "beat", "consume"]),
        ([("worker", "ok", 1), ("beat", "ok", 2), ("consume", "ok", 5)], []),
        ([("worker", "stuck", 1), ("beat", "ok", 1), ("consume", "ok", 1)], ["worker"]),
        ([("worker", "ok", 1), ("beat", "ok", 6), ("consume", "ok", 1)], ["beat"]),
        (
            [("worker", "stuck", 9), ("worker", "ok", 1), ("beat", "ok", 1), ("consume", "down", 1)],
            ["consume"],
        ),
    ],
)
def test_waits_for_one_process_of_each_kind_that_made_progress_in_this_run(
    processes: list[tuple[str, str, float]], missing: list[str]
) -> None:
    report = {
        "processes": [
            {"kind": kind, "status": status, "progress_age_seconds": age} for kind, status, age in processes
        ]
    }

    assert kinds_without_progress(report, since=5.0) == missing
