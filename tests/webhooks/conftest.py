from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from django.db import connections

from tests.webhooks.receiver import Receiver
from webhooks.sending import Sender


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def quick(settings: Any) -> None:
    """Endpoints on this machine may be called, and a day passes in two seconds."""
    settings.OUTBOUND_NETWORKS = (ip_network("127.0.0.0/8"),)
    settings.WEBHOOK_TIMEOUT_SECONDS = 0.5
    settings.WEBHOOK_RETRIES = [timedelta(seconds=seconds) for seconds in (0.05, 0.1, 0.2, 0.3)]
    settings.WEBHOOK_DISABLED_AFTER = timedelta(seconds=2)
    settings.WEBHOOK_SHORTEST_PAUSE = timedelta(seconds=0.1)
    settings.WEBHOOK_LONGEST_PAUSE = timedelta(seconds=0.3)


@pytest.fixture
def sender(transactional_db: None, quick: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sender]:
    """A running sender. The database is emptied afterwards, because other threads wrote to it."""
    monkeypatch.setattr("webhooks.sending.LOOK_SECONDS", 0.05)
    sender = Sender(in_flight=300)
    sender.start()
    yield sender
    assert sender.stop(timeout=10)
    connections.close_all()
