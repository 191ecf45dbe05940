"""One emulated Evolution server: its parts, and its life from start to stop."""

from __future__ import annotations

from sandbox.core import Core
from sandbox.evolution.connection import Connections
from sandbox.evolution.events import Events
from sandbox.evolution.instances import Instances
from sandbox.evolution.mailbox import Mailbox
from sandbox.evolution.receipts import Receipts


class Evolution:
    def __init__(self, core: Core) -> None:
        self.core = core
        self.instances = Instances(core.database)
        self.mailbox = Mailbox(core.database)
        self.events = Events(core)
        self.connections = Connections(core, self.instances, self.events)
        self.receipts = Receipts(core, self.mailbox, self.events)

    def start(self) -> None:
        """Take up what the state directory holds: open instances and receipts still due."""
        by_id = {instance.id: instance for instance in self.instances.all()}
        for instance in by_id.values():
            if instance.status == "open" and instance.paired:
                self.connections.resume(instance)
        for message in self.mailbox.awaiting_receipts():
            self.receipts.play(by_id[message.instance_id], message)

    async def stop(self) -> None:
        await self.events.close()

    def wipe(self) -> None:
        self.instances.wipe()
