"""A running server, and both clients of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.db.models import QuerySet
from pilot_client import AsyncPilot, Pilot, Retrying

from accounts.models import ApiKey
from messaging.models import Message
from tests import factories
from tests.clients.driving import driven
from tests.clients.proxy import Proxy
from tests.sandboxes import sandbox, sandbox_process  # noqa: F401 - fixtures
from tests.webs import running_web

AT_ONCE = Retrying(first=0.001, longest=0.2)


@dataclass
class Account:
    """A project that can send, and its key. Each test has its own, so the database need not be emptied between them."""

    key: ApiKey
    raw: str

    @property
    def messages(self) -> QuerySet[Message]:
        return Message.objects.filter(tenant=self.key.tenant)


@pytest.fixture(scope="package")
def server(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    """The address of one server for all tests of this folder. The database is emptied after them."""
    with django_db_blocker.unblock():
        try:
            with running_web("") as web:
                yield str(web.base_url)
        finally:
            call_command("flush", verbosity=0, interactive=False, allow_cascade=True)
            connections.close_all()


@pytest.fixture
def transactional_db(server: str) -> None:
    """Stands for pytest-django's, which empties the database after each test: that takes seconds. Its name makes
    pytest-django set the database up."""


@pytest.fixture
def account(transactional_db: None) -> Account:
    return Account(*factories.make_sender())


@pytest.fixture
def proxy(server: str) -> Iterator[Proxy]:
    proxy = Proxy(server)
    yield proxy
    proxy.close()


@pytest.fixture(params=["sync", "async"])
def pilot(request: pytest.FixtureRequest, proxy: Proxy, account: Account) -> Iterator[Pilot]:
    """Each client in turn, behind a proxy that lets everything pass unless told otherwise."""
    if request.param == "sync":
        with Pilot(proxy.url, account.raw, retrying=AT_ONCE) as client:
            yield client
        return
    loop = asyncio.new_event_loop()
    waiting = AsyncPilot(proxy.url, account.raw, retrying=AT_ONCE)
    yield driven(waiting, loop)
    loop.run_until_complete(waiting.close())
    loop.close()
