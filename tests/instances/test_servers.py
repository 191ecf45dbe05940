"""Which Evolution server a new instance goes to."""

from __future__ import annotations

import pytest
from django.db import connection
from pytest_django import Settings

from instances import servers
from instances.models import EvolutionServer
from tests.factories import make_instance, make_server

pytestmark = pytest.mark.django_db


def test_chooses_the_least_loaded() -> None:
    busy, quiet = make_server(), make_server()
    make_instance(server=busy)

    assert servers.choose() == quiet


def test_chooses_the_oldest_of_equals() -> None:
    first, _second = make_server(), make_server()

    assert servers.choose() == first


def test_does_not_count_removed_instances() -> None:
    first, second = make_server(), make_server()
    for _ in range(2):
        make_instance(server=first, status="removed")
    make_instance(server=second)

    assert servers.choose() == first


def test_passes_over_servers_without_room_or_that_take_no_more() -> None:
    full, closed, right = make_server(capacity=1), make_server(accepts_new=False), make_server()
    make_instance(server=full)
    make_instance(server=right)
    make_instance(server=right)

    assert servers.choose() == right
    assert closed.instances.count() == 0


def test_says_when_there_is_no_room() -> None:
    make_instance(server=make_server(capacity=1))

    with pytest.raises(servers.NoServerError) as raised:
        servers.choose()
    assert (raised.value.code, raised.value.status) == ("no_server", 503)


def test_takes_the_server_of_the_environment(settings: Settings) -> None:
    settings.EVOLUTION_URL, settings.EVOLUTION_API_KEY = "http://evolution.test", "key-1"

    server = servers.choose()

    assert (server.name, server.url, server.api_key) == ("default", "http://evolution.test", "key-1")


def test_follows_the_environment(settings: Settings) -> None:
    settings.EVOLUTION_URL, settings.EVOLUTION_API_KEY = "http://evolution.test", "key-1"
    servers.take_from_settings()
    EvolutionServer.objects.update(capacity=7)
    settings.EVOLUTION_API_KEY = "key-2"
    servers.take_from_settings()

    server = EvolutionServer.objects.get()
    assert (server.api_key, server.capacity) == ("key-2", 7)


def test_has_no_server_of_the_environment_without_a_url() -> None:
    servers.take_from_settings()

    assert not EvolutionServer.objects.exists()


def test_replaces_a_key_that_cannot_be_read_by_that_of_the_environment(settings: Settings) -> None:
    settings.EVOLUTION_URL, settings.EVOLUTION_API_KEY = "http://evolution.test", "key-1"
    servers.take_from_settings()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE instances_evolutionserver SET api_key = 'not a token'")

    servers.take_from_settings()

    assert EvolutionServer.objects.get().api_key == "key-1"
