"""Where Redis is: REDIS_URL turned into clients, and into the settings of whatever makes its own.

    redis://user:password@host:6379/0                                          one server; rediss:// with TLS
    sentinel://user:password@host:26379,host:26379,host:26379/0?service=name   whichever server Sentinel calls primary

The user and password are the servers' own; those of the sentinels are `sentinel_username` and `sentinel_password` in
the query. Nothing else in Pilot makes a client: a failover is followed everywhere or nowhere.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

SHORT_SECONDS = 0.5
# One sentinel that hangs must not hold up the question to the next.
SENTINEL_OPTIONS: Mapping[str, Any] = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0}
# A subscriber only listens. Without a limit on answers (redis-py 8 ends an idle socket after five seconds), but with
# questions of its own, to which a host that vanished owes an acknowledgement.
SUBSCRIBER_OPTIONS: Mapping[str, Any] = {
    "socket_timeout": None,
    "socket_connect_timeout": 5.0,
    "health_check_interval": 10,
    "socket_keepalive": True,
    "socket_keepalive_options": {
        getattr(socket, name): value
        for name, value in {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_USER_TIMEOUT": 20_000}.items()
        if hasattr(socket, name)
    },
}
SENTINEL_PORT = 26379
PARAMETERS = {"service", "sentinel_username", "sentinel_password"}


@cache
def client() -> Redis:
    """A client for short questions from any process: half a second, and no retries."""
    return connect(timeout=SHORT_SECONDS)


def connect(*, timeout: float) -> Redis:
    """A client of its own, for who waits longer: every answer takes `timeout` seconds at most; nothing is retried.

    What is sent again by itself may be done twice, and an answer that was lost is not read again.
    """
    once = Retry(NoBackoff(), 0)
    return address(settings.REDIS_URL).connect(
        socket_timeout=timeout, socket_connect_timeout=min(timeout, 5.0), retry=once
    )


class Address(Protocol):
    """A place where Redis is found, as each library wants to hear it."""

    @property
    def broker_url(self) -> str:
        """For Celery."""

    @property
    def broker_options(self) -> dict[str, Any]:
        """For Celery: transport options that belong to the URL."""

    @property
    def channel_host(self) -> dict[str, Any]:
        """For channels_redis: an entry of `hosts`."""

    def connect(self, **options: Any) -> Redis:
        """For us: a client with these options of redis-py."""


def address(url: str) -> Address:
    """Reads REDIS_URL. Raises ImproperlyConfigured, saying what is wrong with it."""
    return Sentinels.read(url) if url.startswith("sentinel:") else Server(url)


@dataclass(frozen=True)
class Server:
    """One server, by a URL that every library understands."""

    url: str

    @property
    def broker_url(self) -> str:
        return self.url

    @property
    def broker_options(self) -> dict[str, Any]:
        return {}

    @property
    def channel_host(self) -> dict[str, Any]:
        return {"address": self.url, **SUBSCRIBER_OPTIONS}

    def connect(self, **options: Any) -> Redis:
        return Redis.from_url(self.url, **options)


@dataclass(frozen=True, kw_only=True)
class Sentinels:
    """The sentinels to ask for the primary of `service`; every new connection asks again."""

    hosts: tuple[tuple[str, int], ...]
    service: str
    login: Mapping[str, Any]
    sentinel_options: Mapping[str, Any]

    @classmethod
    def read(cls, url: str) -> Sentinels:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        if unknown := sorted(set(query) - PARAMETERS):
            raise ImproperlyConfigured(f"REDIS_URL has the unknown parameter {unknown[0]}.")
        if not query.get("service"):
            raise ImproperlyConfigured("REDIS_URL must name the service of Sentinel: …/0?service=mymaster.")
        user_and_password, _, hosts = parts.netloc.rpartition("@")
        user, _, password = user_and_password.partition(":")
        of_sentinels = {
            "username": query.get("sentinel_username"),
            "password": query.get("sentinel_password"),
        }
        return cls(
            hosts=tuple(_host(word) for word in hosts.split(",")),
            service=query["service"],
            login={"db": _database(parts.path)} | _filled(username=unquote(user), password=unquote(password)),
            sentinel_options={**SENTINEL_OPTIONS, **_filled(**of_sentinels)},
        )

    @property
    def broker_url(self) -> str:
        """Each with all that is in it, because kombu goes from one to the next and forgets the first."""
        user, password = (quote(self.login.get(name, ""), safe="") for name in ("username", "password"))
        login = f"{user}:{password}@" if user or password else ""
        return ";".join(
            f"sentinel://{login}{_bracketed(host)}:{port}/{self.login['db']}" for host, port in self.hosts
        )

    @property
    def broker_options(self) -> dict[str, Any]:
        return {"master_name": self.service, "sentinel_kwargs": dict(self.sentinel_options)}

    @property
    def channel_host(self) -> dict[str, Any]:
        return {
            "master_name": self.service,
            "sentinels": list(self.hosts),
            "sentinel_kwargs": dict(self.sentinel_options),
            **self.login,
            **SUBSCRIBER_OPTIONS,
        }

    def connect(self, **options: Any) -> Redis:
        untyped: Any = Sentinel
        sentinel = untyped(self.hosts, sentinel_kwargs=dict(self.sentinel_options))
        found: Redis = sentinel.master_for(self.service, **self.login, **options)
        return found


def _host(word: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{word}")
        host, port = parts.hostname, parts.port or SENTINEL_PORT
    except ValueError:
        host, port = None, 0
    if not host:
        raise ImproperlyConfigured(f"REDIS_URL names {word!r}, which is not a host with a port.")
    return host, port


def _database(path: str) -> int:
    name = path.strip("/") or "0"
    if not name.isdecimal():
        raise ImproperlyConfigured(f"REDIS_URL must end in the number of a database, not {name!r}.")
    return int(name)


def _filled(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
