"""What REDIS_URL may say, and what is made of it."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured
from kombu import Connection

from pilot.redis import Sentinels, address

URL = "sentinel://app:p%40ss@a:26380,b,[::1]:26382/3?service=main&sentinel_password=s%26p"


def test_one_server_is_the_same_url_for_everybody() -> None:
    server = address("redis://:secret@host:6380/2")

    assert server.broker_url == server.channel_host["address"] == "redis://:secret@host:6380/2"
    assert server.broker_options == {}


def test_reads_hosts_service_database_and_both_logins() -> None:
    found = address(URL)

    assert isinstance(found, Sentinels)
    assert found.hosts == (("a", 26380), ("b", 26379), ("::1", 26382))
    assert (found.service, found.login) == ("main", {"db": 3, "username": "app", "password": "p@ss"})
    assert found.sentinel_options["password"] == "s&p"


def test_kombu_reads_the_same_login_from_each_of_its_urls() -> None:
    found = address(URL)

    read = [Connection(each) for each in found.broker_url.split(";")]

    assert {(each.transport_cls, each.userid, each.password, each.virtual_host) for each in read} == {
        ("sentinel", "app", "p@ss", "3")
    }
    assert [(each.hostname, each.port) for each in read] == [("a", 26380), ("b", 26379), ("::1", 26382)]


def test_needs_no_login() -> None:
    found = address("sentinel://a/?service=main")

    assert found.broker_url == "sentinel://a:26379/0"
    assert "password" not in found.channel_host["sentinel_kwargs"]


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("sentinel://a:1/0", "must name the service"),
        ("sentinel://a:1/0?service=", "must name the service"),
        ("sentinel://a:1,/0?service=m", "names ''"),
        ("sentinel://a:port/0?service=m", "names 'a:port'"),
        ("sentinel://a:1/cache?service=m", "number of a database, not 'cache'"),
        ("sentinel://a:1/0?service=m&password=x", "unknown parameter password"),
    ],
)
def test_refuses_nonsense_and_says_what_it_is(url: str, complaint: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="REDIS_URL") as refusal:
        address(url)

    assert complaint in str(refusal.value)
