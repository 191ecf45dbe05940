"""Evolution's webhooks: the envelope, who subscribed, where to, and with which headers."""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from collections.abc import Callable
from typing import Any

import jwt
from jwt.warnings import InsecureKeyLengthWarning

from sandbox.core import Core
from sandbox.evolution.formats import iso_now
from sandbox.evolution.instances import Instance
from sandbox.faults import Target
from sandbox.webhooks import Delivery, RetryPolicy, WebhookSender, unnoticed

# The real server signs with any secret it is given, however short.
warnings.simplefilter("ignore", InsecureKeyLengthWarning)

POLICY = RetryPolicy(
    delays=(5, 10, 20, 40, 80, 160, 300, 300, 300),
    final=frozenset({400, 401, 403, 404, 422}),
    jitter=0.2,
    timeout=30,
)
TOKEN_LIFE = 600
HEADERS = {
    "Accept": "application/json, text/plain, */*",
    "Content-Type": "application/json",
    "User-Agent": "axios/1.7.9",
}


class Events:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._sender = WebhookSender(faults=core.faults, policy=POLICY, scale=core.config.retry_scale)

    def emit(
        self,
        instance: Instance,
        event: str,
        data: Any,
        *,
        number: str = "",
        taken: Callable[[], None] = unnoticed,
    ) -> asyncio.Task[None] | None:
        """Fire an event without waiting. Returns the running delivery, or None when nobody subscribed.
        `taken` is called when the receiver took it over."""
        hook = instance.webhook
        if not hook or not hook["enabled"] or _subscription(event) not in hook["events"]:
            return None
        if not hook["url"].startswith(("http://", "https://")):
            return None
        delivery = Delivery(
            url=_url(hook, event),
            headers={**HEADERS, **_headers(hook["headers"] or {})},
            body=json.dumps(self._envelope(instance, event, data), ensure_ascii=False).encode(),
            target=Target(instance=instance.name, number=number, event=event),
            taken=taken,
        )
        return self._core.background.spawn(self._sender.deliver(delivery))

    def _envelope(self, instance: Instance, event: str, data: Any) -> dict[str, Any]:
        config = self._core.config
        sender = {"sender": instance.owner_jid} if instance.session.connected_once else {}
        return {
            "event": event,
            "instance": instance.name,
            "data": data,
            "destination": instance.webhook and instance.webhook["url"],
            "date_time": iso_now(),
            **sender,
            "server_url": config.url,
            "apikey": instance.token if config.expose_token else None,
        }

    async def close(self) -> None:
        await self._sender.close()


def _subscription(event: str) -> str:
    """messages.update -> MESSAGES_UPDATE"""
    return event.replace(".", "_").upper()


def _url(hook: dict[str, Any], event: str) -> str:
    url: str = hook["url"]
    return f"{url}/{event.replace('.', '-')}" if hook["webhookByEvents"] else url


def _headers(custom: dict[str, str]) -> dict[str, str]:
    """`jwt_key` is never sent: it signs a token, minted once per event, so late retries carry a stale one."""
    headers = {name: str(value) for name, value in custom.items() if name != "jwt_key"}
    if key := custom.get("jwt_key"):
        issued = int(time.time())
        claims = {"iat": issued, "exp": issued + TOKEN_LIFE, "app": "evolution", "action": "webhook"}
        headers["Authorization"] = "Bearer " + jwt.encode(claims, key, algorithm="HS256")
    return headers
