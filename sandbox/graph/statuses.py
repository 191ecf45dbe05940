"""Plays the statuses that WhatsApp reports of a message that was taken over."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from sandbox.core import Core
from sandbox.faults import Target
from sandbox.graph.accounts import Account, Accounts, bsuid
from sandbox.graph.errors import status_error
from sandbox.graph.hooks import Hooks, News, stamp
from sandbox.graph.mailbox import Due, Mailbox, Sent

SERIES = ("sent", "delivered", "read")
LEDGER = {"sent": "SENT", "delivered": "DELIVERED", "read": "READ", "played": "PLAYED", "failed": "FAILED"}
OVERTAKING_PATIENCE = 5.0


class Statuses:
    def __init__(self, core: Core, accounts: Accounts, mailbox: Mailbox, hooks: Hooks) -> None:
        self._core = core
        self._accounts = accounts
        self._mailbox = mailbox
        self._hooks = hooks

    def plan(self, sent: Sent, *, failure: int | None) -> None:
        """Decide what will be reported of a message, by the faults that hit it."""
        target = Target(instance=sent.account, number=sent.person, op="message/graph")
        series: list[Due] = list(zip(SERIES, self._core.config.receipts_after, strict=False))
        take = self._core.faults.take
        if take("stay_pending", target):
            series = []
        elif fault := take("failed_status", target):
            sent.failure = status_error(fault.params["code"], fault.params["details"])
            series = _failing(series, then=fault.params["then"])
        elif failure is not None:
            sent.failure = status_error(failure)
            series = _failing(series)
        elif take("read_only", target):
            series = [due for due in series if due[0] != "delivered"]
        elif take("skip_server_ack", target):
            series = series[1:]
        now = time.time()
        sent.due = [(status, now + after) for status, after in series]

    def play(self, sent: Sent) -> None:
        """Report the statuses when they are due, without waiting for them."""
        if sent.due:
            self._core.background.spawn(self._play(sent))

    async def play_overtaking(self, sent: Sent) -> None:
        """Report the first status before the send is answered, the rest when due."""
        if sent.due and (delivery := self._report(sent)):
            await asyncio.wait({delivery}, timeout=OVERTAKING_PATIENCE)
        self.play(sent)

    async def _play(self, sent: Sent) -> None:
        while sent.due:
            await asyncio.sleep(sent.due[0][1] - time.time())
            if self._mailbox.get(sent.id) is None:
                return  # a reset forgot it
            self._report(sent)

    def _report(self, sent: Sent) -> asyncio.Task[None] | None:
        status, _at = sent.due.pop(0)
        with self._core.database.transaction():
            self._core.ledger.advance(key_id=sent.id, status=LEDGER[status])
            self._mailbox.store(sent)
        return self.report(sent, status)

    def report(self, sent: Sent, status: str) -> asyncio.Task[None] | None:
        """Post one status now, whatever was planned."""
        account = self._accounts.get(sent.account)
        if account is None:
            return None
        told = partial(self._core.ledger.tell, key_id=sent.id, status=LEDGER[status])
        entry = entry_of(account, "messages", value_of(account, sent, status))
        return self._hooks.emit(News(account, entry, "statuses", sent.person, told))


def _failing(series: list[Due], then: str = "") -> list[Due]:
    """Failed in place of the first status; `then` proves the contrary later (another device took it)."""
    first = series[0][1] if series else 0.0
    later = [(then, series[-1][1])] if then else []
    return [("failed", first), *later]


def value_of(account: Account, sent: Sent, status: str) -> dict[str, Any]:
    """The value of a change that reports one status."""
    return {**metadata(account), **person(account, sent.person), "statuses": [_status(account, sent, status)]}


def _status(account: Account, sent: Sent, status: str) -> dict[str, Any]:
    item: dict[str, Any] = {
        "id": sent.id,
        "status": status,
        "timestamp": stamp(),
        "recipient_id": sent.person,
    }
    if account.bsuid != "none":
        item["recipient_user_id"] = bsuid(account.business_id, sent.person)
    if sent.callback:
        item["biz_opaque_callback_data"] = sent.callback
    if status == "failed":
        return {**item, "errors": [sent.failure or status_error(131000)]}
    item["pricing"] = {
        "billable": sent.category != "service",
        "pricing_model": "PMP",
        "type": "free_customer_service" if sent.category == "service" else "regular",
        "category": sent.category,
    }
    return item


def entry_of(account: Account, field: str, value: Any) -> dict[str, Any]:
    return {"id": account.business_id, "changes": [{"field": field, "value": value}]}


def metadata(account: Account) -> dict[str, Any]:
    about = {"display_phone_number": account.display_number, "phone_number_id": account.id}
    return {"messaging_product": "whatsapp", "metadata": about}


def person(account: Account, wa_id: str, name: str = "Ana") -> dict[str, Any]:
    """`contacts` as webhooks have it: by number, by BSUID, or both."""
    contact: dict[str, Any] = {"profile": {"name": name}}
    if account.bsuid != "only":
        contact["wa_id"] = wa_id
    if account.bsuid != "none":
        contact["user_id"] = bsuid(account.business_id, wa_id)
    return {"contacts": [contact]}
