"""Clients of the API: each asks until it is answered, with the same Idempotency-Key and body, and remembers what it was
promised. What the product stored is never asked here: a message that it lost must not be forgotten with it.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from launcher import client
from launcher.chaos.schedule import TEMPLATE, Request
from launcher.client import Reply

CLIENTS = 16
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0  # seconds between tries
ACCEPTED = 202
TRY_AGAIN = frozenset({"still_running", "rate_limited"})  # refusals that are none


@dataclass(slots=True)
class Promise:
    """What the product answered to the requests of one number: ids of messages, one if all is well."""

    number: int
    ids: set[str] = field(default_factory=set)
    deliver_until: float = 0.0  # unix time


class Traffic:
    """Sends the requests of a plan, each at its time or as soon after it as there is a client free."""

    def __init__(
        self, requests: Sequence[Request], *, port: int, keys: Sequence[str], names: Sequence[str]
    ) -> None:
        self._requests = iter(requests)
        self._port = port
        self._keys = keys
        self._names = names
        self._lock = threading.Lock()
        self._bodies: dict[int, Mapping[str, Any]] = {}
        self._began = self._answered_at = 0.0
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"client-{n}", daemon=True) for n in range(CLIENTS)
        ]
        self.promises: dict[int, Promise] = {}
        self.refused: dict[int, str] = {}
        self.unanswered: set[int] = set()
        self.tries: Counter[str] = Counter()
        self.replayed = 0

    def start(self) -> None:
        """Let the clients begin."""
        self._began = self._answered_at = time.monotonic()
        for thread in self._threads:
            thread.start()

    def busy(self) -> bool:
        """Whether any client still has something to ask."""
        return any(thread.is_alive() for thread in self._threads)

    def silent_for(self) -> float:
        """Seconds since anybody was answered."""
        return time.monotonic() - self._answered_at

    def give_up(self) -> None:
        """Let clients leave what was not answered."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    @property
    def answers(self) -> int:
        """How many requests were accepted or refused."""
        return len(self.promises) + len(self.refused)

    # --- one client

    def _run(self) -> None:
        while request := self._next():
            self._over.wait(self._began + request.at - time.monotonic())
            self._ask_until_answered(request)

    def _next(self) -> Request | None:
        with self._lock:
            return next(self._requests, None)

    def _ask_until_answered(self, request: Request) -> None:
        pause = FIRST_PAUSE
        while not self._over.is_set():
            if self._is_answer(request, self._ask(request)):
                return
            self._over.wait(pause * random.uniform(0.5, 1.5))
            pause = min(pause * 2, LONGEST_PAUSE)
        with self._lock:
            self.unanswered.add(request.number)

    def _ask(self, request: Request) -> Reply | None:
        headers = {"apikey": self._keys[request.project], "Idempotency-Key": f"chaos-{request.number}"}
        return client.call(self._port, "POST", "/api/messages", body=self._body(request), headers=headers)

    def _is_answer(self, request: Request, reply: Reply | None) -> bool:
        outcome = "no answer" if reply is None else f"{reply.status} {_code(reply)}".strip()
        with self._lock:
            self.tries[outcome] += 1
            if reply is None or reply.status >= 500 or _code(reply) in TRY_AGAIN:
                return False
            if reply.status == ACCEPTED:
                self._note(request, reply.body)
            else:
                self.refused[request.number] = _code(reply)
            self._answered_at = time.monotonic()
            return True

    def _note(self, request: Request, message: Mapping[str, Any]) -> None:
        promise = self.promises.setdefault(request.number, Promise(request.number))
        self.replayed += bool(promise.ids)
        promise.ids.add(message["id"])
        promise.deliver_until = datetime.fromisoformat(message["deliver_until"]).timestamp()

    # --- what is asked

    def _body(self, request: Request) -> Mapping[str, Any]:
        """The same for every try: a deadline is an absolute time."""
        with self._lock:
            if request.number not in self._bodies:
                self._bodies[request.number] = self._compose(request)
            return self._bodies[request.number]

    def _compose(self, request: Request) -> Mapping[str, Any]:
        body = {
            "to": request.to,
            "instance": self._names[request.instance],
            "urgent": request.urgent,
            "refuse_if_late": request.refuse_if_late,
            "skip_opt_in_validation": True,
            "metadata": {"number": str(request.number)},
        }
        if request.within is not None:
            until = datetime.now(UTC) + timedelta(seconds=request.within)
            body["deliver_until"] = until.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return body | _content(request)


def _content(request: Request) -> dict[str, Any]:
    """What it says; always with `marked(number)`, by which the ledger knows it."""
    if request.shape == "template":
        variables = {"n": marked(request.number), "codigo": f"{request.number:06d}"}
        return {"template": f"{TEMPLATE}_{request.category}", "variables": variables}
    content: dict[str, Any] = {"text": f"Olá, {marked(request.number)} ✓", "category": request.category}
    if request.shape == "buttons":
        content["buttons"] = [{"kind": "reply", "label": "Sim", "value": "yes"}]
    return content


def marked(number: int) -> str:
    """The words that tell a message from all others."""
    return f"mensagem-{number:06d}"


def _code(reply: Reply) -> str:
    return str(reply.body.get("error", {}).get("code", ""))
