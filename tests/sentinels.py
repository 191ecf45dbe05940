"""Redis as it is run where it must not go away: a primary, a replica, and three sentinels that watch them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from launcher.engines import Valkey
from launcher.processes import Process
from redis import Redis
from redis.exceptions import RedisError

from tests.sandbox.emulator import eventually

SERVICE = "pilot-test"
DOWN_AFTER_MS = 1000


class Server(Valkey):
    """One of the two servers: a replica of `of`, if that is given. Forgets all when it stops."""

    def __init__(self, directory: Path, *, password: str = "", of: Server | None = None) -> None:
        self._of = of
        super().__init__(directory, password=password, appendonly=False)

    def _settings(self) -> dict[str, str]:
        settings = super()._settings() | {"masterauth": self.password, "repl-diskless-sync-delay": "0"}
        return settings | ({"replicaof": f"127.0.0.1 {self._of.port}"} if self._of else {})


class Sentinel(Valkey):
    """Watches a primary; two of three that miss it for a second make its replica the primary."""

    def __init__(self, directory: Path, *, password: str, watches: Server) -> None:
        self._watches = watches
        super().__init__(directory, password=password)

    def _server(self) -> Process:
        process = super()._server()
        process.argv.append("--sentinel")
        return process

    def _settings(self) -> dict[str, str]:
        return {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "requirepass": self.password,
            "sentinel sentinel-pass": self.password,
            f"sentinel monitor {SERVICE}": f"127.0.0.1 {self._watches.port} 2",
            f"sentinel auth-pass {SERVICE}": self._watches.password,
            f"sentinel down-after-milliseconds {SERVICE}": str(DOWN_AFTER_MS),
            f"sentinel failover-timeout {SERVICE}": "4000",
        }


class Sentinels:
    """The five processes as one Redis: `url` is what REDIS_URL says."""

    def __init__(self, directory: Path) -> None:
        self.primary = Server(directory / "one")
        self.replica = Server(directory / "two", password=self.primary.password, of=self.primary)
        password = "of-the-sentinels"
        self._sentinels = [
            Sentinel(directory / f"sentinel{number}", password=password, watches=self.primary)
            for number in range(3)
        ]
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self._sentinels)
        self.url = (
            f"sentinel://:{self.primary.password}@{hosts}/1?service={SERVICE}&sentinel_password={password}"
        )
        self._asked = [
            Redis(port=sentinel.port, password=password, socket_timeout=1.0) for sentinel in self._sentinels
        ]

    def start(self) -> None:
        """Returns when all know of each other, so that a vote can be had."""
        for process in (self.primary, self.replica, *self._sentinels):
            process.start()
        eventually(self._ready, within=30)

    def stop(self) -> None:
        for sentinel in self._asked:
            sentinel.close()
        processes = (*self._sentinels, self.replica, self.primary)
        for process in processes:
            process.request_stop()
        for process in processes:
            process.stop()

    def named(self) -> int:
        """The port of the server that most sentinels call the primary."""
        ports = [self._named_by(sentinel) for sentinel in self._asked]
        return max(ports, key=ports.count)

    def _named_by(self, sentinel: Redis) -> int:
        answer: Any = sentinel.sentinel_get_master_addr_by_name(SERVICE)
        return int(answer[1])

    def _ready(self) -> bool:
        try:
            states: list[Any] = [sentinel.sentinel_masters()[SERVICE] for sentinel in self._asked]
        except (RedisError, KeyError):
            return False
        return all(state["num-other-sentinels"] == 2 and state["num-slaves"] == 1 for state in states)
