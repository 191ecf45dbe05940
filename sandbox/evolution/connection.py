"""The connection of an instance to WhatsApp: close -> connecting -> open, QR codes, closes and storms."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import time
from collections.abc import Coroutine
from typing import Any

import segno

from sandbox.core import Core
from sandbox.evolution.events import Events
from sandbox.evolution.formats import iso_now, pairing_code
from sandbox.evolution.instances import Instance, Instances, QrCode
from sandbox.faults import Fault, Target

# Seconds in the real server; `wait_scale` multiplies them.
FIRST_QR = 0.5
QR_LIFE = 45.0
RECONNECT = 1.0
LOGOUT = 1.0

TERMINAL = frozenset({401, 402, 403, 406})


class Connections:
    def __init__(self, core: Core, instances: Instances, events: Events) -> None:
        self._core = core
        self._instances = instances
        self._events = events

    async def wait(self, seconds: float) -> None:
        """One of the server's own waits, scaled."""
        await asyncio.sleep(seconds * self._core.config.wait_scale)

    def start(self, instance: Instance, *, number: str | None = None) -> None:
        """Begin connecting: with a QR to scan, or at once when the credentials are kept."""
        target = Target(instance=instance.name, op="instance/connect")
        if fault := self._core.faults.take("connecting_storm", target):
            self.storm(instance, fault)
        elif instance.paired:
            self._attempt(instance, self._reconnect(instance))
        else:
            self._attempt(instance, self._offer_qr(instance, number))

    def resume(self, instance: Instance) -> None:
        """Tell the subscribers that an instance is back after a restart of the server."""
        self._announce(instance, state="connecting")
        self.open(instance)

    def open(self, instance: Instance, *, owner: str | None = None, profile_name: str | None = None) -> None:
        """The phone accepted: paired and open."""
        self._stop_attempt(instance)
        session = instance.session
        session.state = session.socket = "open"
        session.connected_once = True
        session.qr = QrCode()
        instance.paired, instance.status = True, "open"
        instance.owner_jid = f"{owner}@s.whatsapp.net" if owner else instance.owner_jid or _owner(instance)
        instance.profile_name = profile_name or instance.profile_name or instance.name
        self._instances.save(instance)
        self._announce(
            instance,
            wuid=instance.owner_jid,
            profileName=instance.profile_name,
            profilePictureUrl=None,
            state="open",
        )

    def restart(self, instance: Instance) -> None:
        self._core.faults.cure(instance.name)
        self._attempt(instance, self._reconnect(instance))

    def drop(self, instance: Instance, *, reason: int, terminal: bool) -> None:
        """WhatsApp closed the connection. Terminal closes are announced and wipe the credentials; the
        others reconnect with only `connecting` and `open` to be seen."""
        if not terminal:
            self.restart(instance)
            return
        self._stop_attempt(instance)
        instance.session.state, instance.session.socket = "close", "closed"
        instance.session.qr = QrCode()
        instance.paired, instance.status = False, "close"
        instance.disconnection_code, instance.disconnection_at = reason, iso_now()
        instance.disconnection_object = json.dumps(
            {"error": {"output": {"statusCode": reason}}}, separators=(",", ":")
        )
        self._instances.save(instance)
        self._announce_close(instance, reason)

    async def log_out(self, instance: Instance) -> None:
        """The part of a logout that happens after it was answered."""
        await self.wait(LOGOUT)
        if self._instances.get(instance.name) is instance:
            self.drop(instance, reason=401, terminal=True)

    async def remove(self, instance: Instance) -> None:
        """Say goodbye, and only when `remove.instance` was delivered or given up let the name go. The logout
        runs beside it, and is overtaken when the receiver is quick."""
        if instance.session.state != "close":
            self._core.background.spawn(self.log_out(instance))
        identity = {"instanceName": instance.name, "instanceId": instance.id}
        self._events.emit(instance, "instance.delete", identity)
        if goodbye := self._events.emit(instance, "remove.instance", None):
            await asyncio.wait({goodbye})
        self._stop_attempt(instance)
        self._instances.remove(instance)

    def force(self, instance: Instance, *, state: str, socket: str) -> None:
        """Put an instance into a state by hand, without a webhook. A closed state with an open socket, or
        the reverse, is allowed: the real server knows both."""
        self._stop_attempt(instance)
        instance.session.state, instance.session.socket = state, socket
        instance.status = state
        if socket == "open":
            instance.owner_jid = instance.owner_jid or _owner(instance)
            instance.session.connected_once = True
        self._instances.save(instance)

    def storm(self, instance: Instance, fault: Fault) -> None:
        """WhatsApp out of reach: `connecting` webhooks without back-off, and never a QR."""
        self._attempt(instance, self._storm(instance, fault))

    async def _storm(self, instance: Instance, fault: Fault) -> None:
        was_open = instance.session.state == "open"
        instance.session.qr = QrCode()
        ends = time.monotonic() + fault.params["seconds"]
        while time.monotonic() < ends and not fault.cleared:
            self._set_connecting(instance)
            await asyncio.sleep(0.5 / fault.params["rate"])
            instance.session.state = "close"
            await asyncio.sleep(0.5 / fault.params["rate"])
        if was_open:
            self.open(instance)

    async def _reconnect(self, instance: Instance) -> None:
        self._set_connecting(instance)
        await self.wait(RECONNECT)
        self.open(instance)

    async def _offer_qr(self, instance: Instance, number: str | None) -> None:
        self._set_connecting(instance)
        if self._core.config.pair_after is not None:
            self._core.background.spawn(self._pair_later(instance, self._core.config.pair_after))
        await self.wait(FIRST_QR)
        for count in range(1, self._core.config.qr_limit + 1):
            self._issue_qr(instance, count, number)
            await self.wait(QR_LIFE)
        self._refuse(instance)

    async def _pair_later(self, instance: Instance, seconds: float) -> None:
        attempt = instance.session.attempt
        await asyncio.sleep(seconds)
        if instance.session.attempt is attempt and instance.session.state == "connecting":
            self.open(instance)

    def _issue_qr(self, instance: Instance, count: int, number: str | None) -> None:
        parts = [base64.b64encode(secrets.token_bytes(32)).decode() for _ in range(4)]
        code = "2@" + ",".join(parts)
        image = segno.make(code, error="l").png_data_uri(scale=3)
        pairing = pairing_code() if number else None
        instance.session.qr = QrCode(count=count, code=code, base64=image, pairing_code=pairing)
        instance.status = "connecting"
        self._instances.save(instance)
        shown = {"instance": instance.name, "pairingCode": pairing, "code": code, "base64": image}
        self._events.emit(instance, "qrcode.updated", {"qrcode": shown})

    def _refuse(self, instance: Instance) -> None:
        """Nobody scanned any of the codes: the server gives up."""
        instance.session.qr = QrCode()
        instance.session.state, instance.session.socket = "close", "closed"
        message = "QR code limit reached, please login again"
        self._events.emit(instance, "qrcode.updated", {"message": message, "statusCode": 500})
        known = {"wuid": instance.owner_jid, "profileName": instance.profile_name}
        data = {"instance": instance.name, "state": "refused", "statusReason": 428}
        once_open = known if instance.owner_jid else {}
        self._events.emit(instance, "connection.update", {**data, **once_open})

    def _set_connecting(self, instance: Instance) -> None:
        instance.session.state = instance.session.socket = "connecting"
        self._announce(instance, state="connecting")

    def _announce(self, instance: Instance, **data: object) -> None:
        body = {"instance": instance.name, **data, "statusReason": 200}
        self._events.emit(instance, "connection.update", body)

    def _announce_close(self, instance: Instance, reason: int) -> None:
        name = instance.name
        self._events.emit(
            instance, "connection.update", {"instance": name, "state": "close", "statusReason": reason}
        )
        closed = {
            "instance": name,
            "status": "closed",
            "disconnectionAt": instance.disconnection_at,
            "disconnectionReasonCode": reason,
            "disconnectionObject": instance.disconnection_object,
        }
        self._events.emit(instance, "status.instance", closed)
        self._events.emit(instance, "logout.instance", None)

    def _attempt(self, instance: Instance, work: Coroutine[Any, Any, None]) -> None:
        self._stop_attempt(instance)
        instance.session.attempt = self._core.background.spawn(work)

    def _stop_attempt(self, instance: Instance) -> None:
        attempt, instance.session.attempt = instance.session.attempt, None
        # An attempt that opens the instance comes through here itself, and must live to say so.
        if attempt and attempt is not asyncio.current_task():
            attempt.cancel()


def _owner(instance: Instance) -> str:
    """The number that paired: the one given at creation, else one made from the name."""
    digits = (
        instance.number or f"55119{int(hashlib.sha256(instance.name.encode()).hexdigest(), 16) % 10**8:08d}"
    )
    return f"{digits}@s.whatsapp.net"
