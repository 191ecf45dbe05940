"""Wait until every part of the product makes progress, or tell which does not."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher import client
from launcher.console import Console
from launcher.errors import LauncherError, tail
from launcher.supervisor import Supervisor

DEADLINE = 60.0  # seconds
INTERVAL = 0.3
KINDS = ("worker", "beat", "consume")


def wait_for_progress(
    port: int, *, logs: Mapping[str, Path], supervisor: Supervisor, console: Console
) -> float:
    """Return the seconds it took; raises LauncherError with the logs of what is missing after 60 s."""
    began = time.monotonic()
    waited = 0.0
    while missing := missing_parts(port, since=waited):
        waited = time.monotonic() - began
        console.status("processes", f"waiting for {', '.join(missing)}  {waited:.0f} s")
        supervisor.refuse_failing()
        if waited > DEADLINE:
            raise LauncherError(_explain(missing, logs))
        supervisor.sleep(INTERVAL)
    return time.monotonic() - began


def missing_parts(port: int, *, since: float) -> list[str]:
    """What has not worked in the last `since` seconds: `web`, which reports on the others, else their kinds."""
    alive = client.call(port, "GET", "/livez")
    if alive is None or alive.status != 200:
        return ["web"]
    report = client.call(port, "GET", "/health")
    return kinds_without_progress(report.body if report else {}, since=since)


def kinds_without_progress(report: Mapping[str, Any], *, since: float) -> list[str]:
    """The kinds of which a /health report has no process that is ok and made progress in that time.

    Right after a restart the report still speaks well of the processes of the run before.
    """
    working = {
        process["kind"]
        for process in report.get("processes", [])
        if process["status"] == "ok" and process["progress_age_seconds"] <= since
    }
    return [kind for kind in KINDS if kind not in working]


def _explain(missing: list[str], logs: Mapping[str, Path]) -> str:
    parts = [f"{name} ({logs[name]}) ends with\n{tail(logs[name])}" for name in missing]
    return "\n".join([f"No progress within {DEADLINE:.0f} s from: {', '.join(missing)}.", *parts])
