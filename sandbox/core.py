"""What every emulator in the sandbox shares: settings, durable state, ledger, faults and background tasks."""

from __future__ import annotations

from sandbox.background import Background
from sandbox.config import Config
from sandbox.database import Database
from sandbox.faults import Faults
from sandbox.ledger import Ledger
from sandbox.numbers import Directory
from sandbox.traffic import Traffic


class Core:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.database = Database(config.state)
        self.ledger = Ledger(self.database)
        self.directory = Directory(self.database)
        self.faults = Faults()
        self.traffic = Traffic()
        self.background = Background()

    async def close(self) -> None:
        await self.background.stop()
        self.database.close()

    def wipe(self) -> None:
        """Forget everything: rows, faults and the request log."""
        self.faults.clear()
        self.traffic.wipe()
        self.database.wipe()
