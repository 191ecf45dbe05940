from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.messaging.sends import Sends
from tests.sandbox.emulator import Emulator
from tests.sandboxes import sandbox, sandbox_process

__all__ = ["sandbox", "sandbox_process"]


@pytest.fixture
def sends(transactional_db: None, sandbox: Emulator) -> Iterator[Sends]:
    """Real sends to the sandbox; the database is emptied afterwards, because other threads wrote to it."""
    sends = Sends(sandbox)
    yield sends
    sends.close()
