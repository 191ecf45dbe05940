"""One emulated Graph API: its parts, and its life from start to stop."""

from __future__ import annotations

from sandbox.core import Core
from sandbox.graph.accounts import Account, Accounts, Objects, bsuid, digits
from sandbox.graph.hooks import Hooks
from sandbox.graph.limits import Clock, Limits
from sandbox.graph.mailbox import Mailbox
from sandbox.graph.statuses import Statuses
from sandbox.numbers import Contact


class Graph:
    def __init__(self, core: Core) -> None:
        self.core = core
        self.objects = Objects(core.database)
        self.accounts = Accounts(self.objects)
        self.mailbox = Mailbox(core.database)
        self.clock = Clock()
        self.limits = Limits(self.clock)
        self.hooks = Hooks(core)
        self.statuses = Statuses(core, self.accounts, self.mailbox, self.hooks)

    def start(self) -> None:
        """Take up what the state directory holds: statuses still due."""
        for sent in self.mailbox.awaiting():
            self.statuses.play(sent)

    async def stop(self) -> None:
        await self.hooks.close()

    def wipe(self) -> None:
        self.limits.wipe()

    def contact(self, account: Account, written: str) -> Contact:
        """Whom a number or a BSUID means. BSUIDs are known of people who were seen once."""
        if written[:2].isalpha():
            known = self.objects.get("bsuid", written)
            written = known.fields["number"] if known else written
        contact = self.core.directory.find(digits(written))
        number = contact.jid.partition("@")[0]
        self.objects.put("bsuid", bsuid(account.business_id, number), {"number": number})
        return contact
