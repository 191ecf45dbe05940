"""The demo: an account with a connected sandbox instance, one message, and its timeline as it happens."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from launcher import client, demo_meta
from launcher.console import BOLD, Console
from launcher.errors import LauncherError
from launcher.product import manage
from launcher.state import State
from launcher.steps import Quiet, run_to_end
from launcher.supervisor import Supervisor

DEADLINE = 60.0  # seconds from sending to read
INTERVAL = 0.1
FINAL = ("read", "played", "failed", "cancelled")
HAPPY = ("read", "played")


@dataclass(frozen=True)
class Demo:
    """What `manage.py demo` made, as it wrote it down."""

    email: str
    password: str
    api_key: str
    to: str
    template: str
    variables: dict[str, str]
    instance: Any
    meta: dict[str, str] | None = None  # the linked number: instance, url, verify_token

    @classmethod
    def load(cls, path: Path) -> Demo:
        """Read the file that `manage.py demo` wrote; keys unknown here are ignored."""
        written = json.loads(path.read_text())
        return cls(**{field.name: written[field.name] for field in fields(cls) if field.name in written})

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The bodies of POST /api/messages, one for each channel."""
        return [self.message, *([demo_meta.message(self.meta["instance"])] if self.meta else [])]

    @property
    def message(self) -> dict[str, Any]:
        """The body of POST /api/messages."""
        return {"to": self.to, "template": self.template, "variables": self.variables, "urgent": True}

    def curl(self, public_url: str) -> str:
        """A command line that sends the same message again."""
        parts = ["curl", "-s", f"{public_url}/api/messages", "-H", f"apikey: {self.api_key}"]
        return shlex.join([*parts, "-H", "Content-Type: application/json", "-d", json.dumps(self.message)])


def prepare(state: State, env: Mapping[str, str], *, supervisor: Supervisor, console: Console) -> Demo:
    """Make the demo account, or find it again. Raises LauncherError with the command's output."""
    file = state.root / "demo.json"
    meta = demo_meta.open_account(env)
    command = manage("demo", "demo", "--state", str(file), *meta, env=env, log=state.log("demo"))
    progress = Quiet("account, API key, template, sandbox instances")
    seconds = run_to_end(command, label="demo", progress=progress, console=console, pause=supervisor.sleep)
    console.step("demo", f"{progress.text()} ({seconds:.1f} s)")
    demo = Demo.load(file)
    if demo.meta:
        demo_meta.subscribe(env, demo.meta)
    return demo


class Courier:
    """Sends one of the demo messages and follows it through the public API."""

    def __init__(
        self,
        port: int,
        demo: Demo,
        message: Mapping[str, Any],
        *,
        supervisor: Supervisor,
        console: Console,
    ) -> None:
        self._port = port
        self._demo = demo
        self._message = message
        self._supervisor = supervisor
        self._console = console
        self._shown = 0
        self._first_at: datetime | None = None

    def deliver(self) -> float:
        """Send the message, print its timeline until it is read, and return the seconds that took.

        Raises LauncherError with the last status and the API's reason when it is not read within 60 s.
        """
        began = time.monotonic()
        path = f"/api/messages/{self._send()}"
        while True:
            message = self._get(path)
            self._show_new(self._get(f"{path}/events").get("events", []))
            status = message.get("status")
            waited = time.monotonic() - began
            if status in HAPPY:
                return waited
            if status in FINAL or waited > DEADLINE:
                raise LauncherError(f"The demo message was not read: it is {status}.\n{_why(message)}")
            self._console.status("message", f"{status}  {waited:.0f} s")
            self._supervisor.sleep(INTERVAL)

    def _send(self) -> str:
        by = f" by {self._message['instance']}" if "instance" in self._message else ""
        what = f"template {self._message['template']}" if "template" in self._message else "a text"
        self._console.say(f"\n  Sending {what} to {self._message['to']}{by}")
        key = {"apikey": self._demo.api_key}
        reply = client.call(self._port, "POST", "/api/messages", body=self._message, headers=key)
        if reply is None or reply.status != 202:
            answer = f"{reply.status} {json.dumps(reply.body)}" if reply else "no answer"
            raise LauncherError(f"The demo message was not accepted: {answer}")
        return str(reply.body["id"])

    def _get(self, path: str) -> dict[str, Any]:
        reply = client.call(self._port, "GET", path, headers={"apikey": self._demo.api_key})
        return reply.body if reply else {}

    def _show_new(self, events: list[dict[str, Any]]) -> None:
        for event in events[self._shown :]:
            at = datetime.fromisoformat(event["at"])
            self._first_at = self._first_at or at
            self._console.say(timeline_line(event, (at - self._first_at).total_seconds()))
        self._shown = max(self._shown, len(events))


def timeline_line(event: Mapping[str, Any], offset: float) -> str:
    """One event of a message for the terminal; `offset` is in seconds since its first."""
    detail = event.get("detail") or ""
    text = detail if isinstance(detail, str) else json.dumps(detail, ensure_ascii=False)
    status = event.get("status") if event.get("status") != event["kind"] else None
    return "  ".join([f"    {offset:+8.3f} s", f"{event['kind']:<12}", *filter(None, [status, text])])[
        :120
    ].rstrip()


def _why(message: Mapping[str, Any]) -> str:
    shown = message.get("why") or message or "The API did not answer."
    return "  " + (shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, indent=2))


def explain(demo: Demo, *, public_url: str, logs: Path, console: Console) -> None:
    """Tell a newcomer where to go next."""
    console.say(f"\n  {console.paint(BOLD, 'Pilot runs at ' + public_url)}")
    console.say(f"    Dashboard  {public_url}/  log in as {demo.email} / {demo.password}")
    console.say(f"    API key    {demo.api_key}")
    console.say(f"    Logs       {logs}")
    console.say(f"    Send another message:\n      {demo.curl(public_url)}")
