"""Graph's webhooks: envelope, signature over the very bytes that are sent, batches, and the handshake."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from sandbox.core import Core
from sandbox.faults import Target
from sandbox.graph.accounts import INSTAGRAM, Account
from sandbox.webhooks import Delivery, RetryPolicy, WebhookSender, unnoticed

OBJECTS = {"whatsapp": "whatsapp_business_account", INSTAGRAM: "instagram"}
# Meta repeats for days; what a test needs is that it repeats on anything but a 200.
POLICY = RetryPolicy(delays=(5, 10, 20, 40, 80, 160, 320, 600), final=frozenset(), jitter=0.2, timeout=20)
HANDSHAKE_TIMEOUT = 10.0


@dataclass(frozen=True)
class News:
    """One entry for an account's webhook; `event` is what faults know it by."""

    account: Account
    entry: dict[str, Any]
    event: str
    number: str = ""
    taken: Callable[[], None] = unnoticed


class Hooks:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._sender = WebhookSender(faults=core.faults, policy=POLICY, scale=core.config.retry_scale)
        self._held: dict[tuple[str, str, str], list[News]] = {}

    def emit(self, news: News) -> asyncio.Task[None] | None:
        """Post one piece of news, at once or with others of its batch. None when it goes nowhere or later."""
        account = news.account
        if not account.webhook:
            return None
        if not account.batch:
            return self._post([news])
        key = (account.webhook, account.app_secret, account.kind)
        self._held.setdefault(key, []).append(news)
        if len(self._held[key]) == 1:
            self._core.background.spawn(self._flush_later(key, account.batch))
        return None

    async def _flush_later(self, key: tuple[str, str, str], seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._post(self._held.pop(key))

    def _post(self, batch: list[News]) -> asyncio.Task[None]:
        first = batch[0]
        body = encode({"object": OBJECTS[first.account.kind], "entry": _merged(batch)})
        delivery = Delivery(
            url=first.account.webhook,
            headers=_headers(body, first.account.app_secret),
            body=body,
            target=Target(instance=first.account.id, number=first.number, event=first.event),
            taken=lambda: _all_taken(batch),
        )
        return self._core.background.spawn(self._sender.deliver(delivery))

    def post_raw(self, account: Account, payload: Any) -> None:
        """Post any payload, signed."""
        body = encode(payload)
        target = Target(instance=account.id, event="raw")
        delivery = Delivery(account.webhook, _headers(body, account.app_secret), body, target)
        self._core.background.spawn(self._sender.deliver(delivery))

    async def close(self) -> None:
        await self._sender.close()


def encode(payload: Any) -> bytes:
    """As Meta writes it: escaped to ASCII in lower case, slashes too."""
    return json.dumps(payload, separators=(",", ":")).replace("/", "\\/").encode()


def sign(body: bytes, secret: str) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def _headers(body: bytes, secret: str) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "User-Agent": "facebookexternalua",
        "X-Hub-Signature-256": sign(body, secret),
    }


def _all_taken(batch: list[News]) -> None:
    for news in batch:
        news.taken()


def _merged(batch: list[News]) -> list[dict[str, Any]]:
    """The entries of a batch; what is about one business shares an entry."""
    entries: dict[str, dict[str, Any]] = {}
    for news in batch:
        entry = entries.setdefault(news.entry["id"], {})
        for name, value in news.entry.items():
            entry[name] = [*entry.get(name, []), *value] if isinstance(value, list) else value
    return list(entries.values())


async def handshake(account: Account) -> dict[str, Any]:
    """The GET by which Meta asks whether a webhook is ours; it is not signed."""
    challenge = str(secrets.randbelow(10**10))
    query = {
        "hub.mode": "subscribe",
        "hub.verify_token": account.verify_token,
        "hub.challenge": challenge,
    }
    async with httpx.AsyncClient(timeout=HANDSHAKE_TIMEOUT) as client:
        answer = await client.get(account.webhook, params=query)
    return {"status": answer.status_code, "verified": answer.status_code == 200 and answer.text == challenge}


def stamp(at: float | None = None) -> str:
    """Unix seconds as text, as WhatsApp's webhooks have them."""
    return str(int(at if at is not None else time.time()))
