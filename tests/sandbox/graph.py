"""A number on the emulated Cloud API, and what its webhook was told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx

from tests.sandbox.emulator import Emulator, Receiver

PERSON = "5511987654321"
SECRET = "app-secret"


class Api:
    """Graph under one version and token; a path that is a whole address is taken as it is."""

    def __init__(self, emulator: Emulator, token: str) -> None:
        self._emulator = emulator
        self._headers = {"Authorization": f"Bearer {token}"}

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self._ask("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self._ask("POST", path, **options)

    def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        url = path if path.startswith("http") else f"/v25.0{path}"
        headers = self._headers | options.pop("headers", {})
        return self._emulator.api.request(method, url, headers=headers, **options)


class GraphAccount:
    """`api` speaks to Graph with the account's token; `do` controls it."""

    def __init__(self, emulator: Emulator, id: str = "111", **fields: Any) -> None:
        self.id = id
        self.emulator = emulator
        self.token = fields.setdefault("token", f"token-{id}")
        fields.setdefault("business_id", "waba-1")
        fields.setdefault("app_secret", SECRET)
        assert emulator.control.post(f"/graph/accounts/{id}", json=fields).is_success
        self.api = Api(emulator, self.token)

    def do(self, action: str, **body: Any) -> Any:
        answer = self.emulator.control.post(f"/graph/accounts/{self.id}/{action}", json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def change(self, **fields: Any) -> None:
        assert self.emulator.control.post(f"/graph/accounts/{self.id}", json=fields).is_success

    def send(self, to: str = PERSON, **body: Any) -> httpx.Response:
        message = {"messaging_product": "whatsapp", "to": to, **(body or text("hi"))}
        return self.api.post(f"/{self.id}/messages", json=message)

    def advance(self, seconds: float) -> None:
        assert self.emulator.control.post("/graph/clock", json={"seconds": seconds}).is_success


def text(body: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": {"body": body}, **more}


def values(receiver: Receiver) -> Iterator[dict[str, Any]]:
    """The value of every change that was posted, in the order of arrival."""
    for received in list(receiver.received):
        for entry in received.body["entry"]:
            for change in entry.get("changes", []):
                yield change["value"]


def statuses(receiver: Receiver) -> list[dict[str, Any]]:
    return [status for value in values(receiver) for status in value.get("statuses", [])]


def messages(receiver: Receiver) -> list[dict[str, Any]]:
    return [message for value in values(receiver) for message in value.get("messages", [])]


def direct(receiver: Receiver) -> list[dict[str, Any]]:
    """Every item of `messaging` that an Instagram webhook was told."""
    entries = [entry for received in list(receiver.received) for entry in received.body["entry"]]
    return [item for entry in entries for item in entry.get("messaging", [])]
