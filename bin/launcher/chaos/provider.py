"""The sandbox's control API: what went out, what was told of it, and faults on demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from launcher import client

PAGE = 1000


class ControlError(Exception):
    """The sandbox did not do what it was told, as while it is down."""


class Provider:
    """The sandbox at a port of this machine. Methods raise ControlError."""

    def __init__(self, port: int, *, key: str) -> None:
        self._port = port
        self._key = key

    def arm(self, spec: Mapping[str, Any]) -> None:
        """Switch a fault on."""
        self._control("POST", "faults", spec)

    def disarm(self) -> bool:
        """Switch every fault off. False while the sandbox is down."""
        try:
            self._control("DELETE", "faults")
        except ControlError:
            return False
        return True

    def put_number(self, number: str, **facts: Any) -> None:
        """Say what is true of a number on the emulated WhatsApp."""
        self._control("POST", f"numbers/{number.removeprefix('+')}", facts)

    def pair(self, instance: str) -> None:
        """Connect an instance, as a person with a telephone would."""
        self._control("POST", f"instances/{instance}/pair", {})

    def disconnect(self, instance: str, *, terminal: bool) -> None:
        """Let WhatsApp close an instance's connection: for good, or to come back by itself."""
        reason = {"reason": 401 if terminal else 428, "terminal": terminal}
        self._control("POST", f"instances/{instance}/disconnect", reason)

    def ledger(self) -> Iterator[dict[str, Any]]:
        """Every message that went out."""
        return self._pages("ledger")

    def told(self) -> Iterator[dict[str, Any]]:
        """All news that the product answered for with a 2xx."""
        return self._pages("told")

    def has_stored(self, instance: str, key_id: str) -> bool:
        """Whether Evolution itself knows the message, so that a look-up can find it."""
        body = {"where": {"key": {"id": key_id}}}
        headers = {"apikey": self._key}
        reply = client.call(self._port, "POST", f"/chat/findMessages/{instance}", body=body, headers=headers)
        if reply is None or reply.status != 200:
            raise ControlError(f"findMessages: {reply}")
        return bool(reply.body["messages"]["records"])

    def _pages(self, name: str) -> Iterator[dict[str, Any]]:
        after = 0
        while True:
            page = self._control("GET", f"{name}?after={after}&limit={PAGE}")
            yield from page["entries"]
            if len(page["entries"]) < PAGE:
                return
            after = page["next"]

    def _control(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        headers = {"X-Sandbox-Key": self._key}
        reply = client.call(self._port, method, f"/_sandbox/{path}", body=body, headers=headers)
        if reply is None or reply.status >= 300:
            raise ControlError(f"{method} {path}: {reply.status if reply else 'no answer'}")
        return reply.body
