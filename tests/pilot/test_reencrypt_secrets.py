"""`manage.py reencrypt_secrets` after a new key was put first in ENCRYPTION_KEYS."""

from __future__ import annotations

from io import StringIO

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from django.db import connection
from pytest_django import Settings

from instances.models import EvolutionServer, Instance
from tests.factories import make_instance, make_server

pytestmark = pytest.mark.django_db


@pytest.fixture
def keys(settings: Settings) -> list[str]:
    """A new key and the old one, after rows were written with the old."""
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    settings.ENCRYPTION_KEYS = [old]
    for number in range(5):
        make_instance(server=make_server(api_key=f"key-{number}"), credentials={"token": number})
    settings.ENCRYPTION_KEYS = [new, old]
    return [new, old]


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("reencrypt_secrets", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("batch", ["1", "2", "500"])
def test_puts_every_secret_under_the_newest_key(keys: list[str], settings: Settings, batch: str) -> None:
    out = run("--batch", batch)

    assert "instances.EvolutionServer.api_key: 5 encrypted again, 0 unreadable" in out
    assert "instances.Instance.hook_token: 5 encrypted again, 0 unreadable" in out
    assert "instances.Instance.credentials: 5 encrypted again, 0 unreadable" in out
    settings.ENCRYPTION_KEYS = keys[:1]
    assert sorted(server.api_key for server in EvolutionServer.objects.all()) == [
        f"key-{number}" for number in range(5)
    ]
    assert sorted(instance.credentials["token"] for instance in Instance.objects.all()) == [0, 1, 2, 3, 4]


def test_may_be_repeated(keys: list[str]) -> None:
    run()

    assert "instances.EvolutionServer.api_key: 5 encrypted again, 0 unreadable" in run()


def test_leaves_empty_secrets_empty(keys: list[str]) -> None:
    Instance.objects.update(credentials={})
    EvolutionServer.objects.filter(api_key__isnull=False).update(api_key="")

    assert "instances.EvolutionServer.api_key: 0 encrypted again" in run()
    assert set(EvolutionServer.objects.values_list("api_key", flat=True)) == {""}


def test_goes_on_past_a_secret_that_no_key_reads_and_says_so(keys: list[str], settings: Settings) -> None:
    lost = EvolutionServer.objects.order_by("pk").first()
    assert lost is not None
    with connection.cursor() as cursor:
        cursor.execute("UPDATE instances_evolutionserver SET api_key = 'junk' WHERE id = %s", [lost.pk])

    with pytest.raises(CommandError, match="1 secrets cannot be read"):
        run()
    settings.ENCRYPTION_KEYS = keys[:1]
    readable = EvolutionServer.objects.exclude(pk=lost.pk)
    assert {server.api_key for server in readable} == {"key-1", "key-2", "key-3", "key-4"}
