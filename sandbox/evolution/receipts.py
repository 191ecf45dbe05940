"""Plays the receipts WhatsApp sends back for a delivered message."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from sandbox.core import Core
from sandbox.evolution.events import Events
from sandbox.evolution.instances import BAILEYS, BUSINESS, PASSIVE, Instance
from sandbox.evolution.mailbox import Mailbox, Message, Receipt
from sandbox.faults import Target
from sandbox.numbers import is_group

SERIES = {
    BAILEYS: ("SERVER_ACK", "DELIVERY_ACK", "READ"),
    BUSINESS: ("SENT", "DELIVERED", "READ"),
    PASSIVE: (),
}
FAILURES = {BAILEYS: "ERROR", BUSINESS: "FAILED", PASSIVE: "ERROR"}
# A receiver that does not answer must not keep the sender waiting for its 201 for ever.
OVERTAKING_PATIENCE = 5.0


class Receipts:
    def __init__(self, core: Core, mailbox: Mailbox, events: Events) -> None:
        self._core = core
        self._mailbox = mailbox
        self._events = events

    def plan(self, instance: Instance, *, jid: str, op: str) -> tuple[Receipt, ...]:
        """The (status, due) pairs of a message about to be delivered. Groups get none."""
        target = Target(instance=instance.name, number=jid, op=op)
        series = list(zip(SERIES[instance.integration], self._core.config.receipts_after, strict=False))
        if not series or is_group(jid) or self._core.faults.take("stay_pending", target):
            return ()
        if self._core.faults.take("error_receipt", target):
            series = [(FAILURES[instance.integration], series[0][1])]
        elif self._core.faults.take("skip_server_ack", target):
            series = series[1:]
        now = time.time()
        return tuple((status, now + after) for status, after in series)

    def play(self, instance: Instance, message: Message) -> None:
        """Send the message's receipts when they are due, without waiting for them."""
        if message.receipts:
            self._core.background.spawn(self._play(instance, message, message.receipts))

    async def play_overtaking(self, instance: Instance, message: Message) -> None:
        """Deliver the first receipt before the send is answered, the rest when due."""
        (status, _due), *rest = message.receipts
        if delivery := self._apply(instance, message, status):
            await asyncio.wait({delivery}, timeout=OVERTAKING_PATIENCE)
        self._core.background.spawn(self._play(instance, message, tuple(rest)))

    async def _play(self, instance: Instance, message: Message, receipts: tuple[Receipt, ...]) -> None:
        for status, due in receipts:
            await asyncio.sleep(due - time.time())
            self._apply(instance, message, status)

    def _apply(self, instance: Instance, message: Message, status: str) -> asyncio.Task[None] | None:
        with self._core.database.transaction():
            self._core.ledger.advance(key_id=message.key_id, status=status)
            kept = self._mailbox.add_update(message, status)
        if not kept:
            return None
        data = {
            "keyId": message.key_id,
            "remoteJid": message.address,
            "fromMe": message.from_me,
            "status": status,
            "instanceId": instance.id,
            "messageId": message.id,
        }
        told = partial(self._core.ledger.tell, key_id=message.key_id, status=status)
        return self._events.emit(instance, "messages.update", data, number=message.address, taken=told)
