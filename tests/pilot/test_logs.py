"""Nothing secret reaches a log line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pilot.logs import redact


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("apikey", "pilot_live_1", "***"),
        ("Authorization", "Bearer x", "***"),
        ("hook_token", "t0ken", "***"),
        ("event", "sent to +5511999990000", "sent to ***0000"),
        ("event", "jid 5511999990000@s.whatsapp.net", "jid ***0000@s.whatsapp.net"),
        (
            "event",
            "POST /hooks/evolution/s3cret/messages-update 503",
            "POST /hooks/evolution/***/messages-update 503",
        ),
        ("event", "GET '/hooks/evolution/s3cret'", "GET '/hooks/evolution/***'"),
        ("message_id", "01a228e8-b0e0-76d8-8e58-6f34379b5939", "01a228e8-b0e0-76d8-8e58-6f34379b5939"),
        ("instances", 50, 50),
    ],
)
def test_hides_secrets_and_numbers(name: str, value: object, shown: object) -> None:
    assert redact(None, "info", {name: value})[name] == shown


PROGRAM = """
import logging.config, structlog
from pilot.logs import logging_settings
logging.config.dictConfig(logging_settings(level="INFO", json={json}))
def fail(password):
    raise ValueError("no")
try:
    fail("hunter2")
except ValueError:
    structlog.get_logger("x").exception("broke", apikey="k3y")
"""


@pytest.mark.parametrize("as_json", [True, False])
def test_tracebacks_come_without_local_variables(as_json: bool) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{json}", str(as_json))],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "ValueError: no" in run.stderr
    assert "k3y" not in run.stderr
    assert "hunter2" not in run.stderr.replace('fail("hunter2")', "")
    if as_json:
        assert json.loads(run.stderr)["event"] == "broke"
