"""What Pilot consists of when it runs on one machine: its processes and the environment they share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher import paths
from launcher.engines import Engine, Postgres, Valkey
from launcher.processes import Process
from launcher.state import State
from launcher.venv import child_env

DEFAULT_PORTS = {"web": 8000, "sandbox": 8090, "postgres": 15432, "valkey": 16379}
WORKER_NAME = "worker1@pilot"
# Seconds a process may take to stop: web ends its requests, a worker the provider calls it is in.
GRACE = {"web": 25.0, "worker": 40.0, "beat": 10.0, "consume": 20.0, "sandbox": 5.0}


@dataclass(frozen=True)
class Addresses:
    """Where the parts of one running product are found."""

    database_url: str
    redis_url: str
    web_port: int
    sandbox_port: int

    @property
    def public_url(self) -> str:
        """Where a browser or an API client goes."""
        return f"http://127.0.0.1:{self.web_port}"


def engines(state: State, secrets: Mapping[str, str]) -> list[Engine]:
    """The servers to start: none for which the environment already has an address."""
    wanted: list[Engine] = []
    if "DATABASE_URL" not in os.environ:
        port = state.ports.take("postgres", default=DEFAULT_PORTS["postgres"])
        password, log = secrets["POSTGRES_PASSWORD"], state.log("postgres")
        wanted.append(Postgres(state.root / "postgres", port=port, password=password, log=log))
    if "REDIS_URL" not in os.environ:
        port = state.ports.take("valkey", default=DEFAULT_PORTS["valkey"])
        password, log = secrets["VALKEY_PASSWORD"], state.log("valkey")
        wanted.append(Valkey(state.root / "valkey", port=port, password=password, log=log))
    return wanted


def url_of(variable: str, kind: type[Engine], started: list[Engine]) -> str:
    """The address of the server we started of this kind, else what the environment says."""
    for engine in started:
        if isinstance(engine, kind):
            return engine.url
    return os.environ[variable]


def environment(addresses: Addresses, secrets: Mapping[str, str]) -> dict[str, str]:
    """The environment of every process of the product; keys that the caller has set are kept."""
    return child_env(
        {
            "DATABASE_URL": addresses.database_url,
            "REDIS_URL": addresses.redis_url,
            "SECRET_KEY": os.environ.get("SECRET_KEY", secrets["SECRET_KEY"]),
            "ENCRYPTION_KEYS": os.environ.get("ENCRYPTION_KEYS", secrets["ENCRYPTION_KEYS"]),
            "PUBLIC_URL": addresses.public_url,
            "ALLOWED_HOSTS": "127.0.0.1,localhost",
            "DEBUG": "0",
            "INSTANCE_HOSTS_ALLOW_PRIVATE": "1",
            "NO_PROXY": "127.0.0.1,localhost",
        }
    )


def sandbox_environment(addresses: Addresses, secrets: Mapping[str, str]) -> dict[str, str]:
    """What makes the sandbox the product's default Evolution server, and Meta."""
    sandbox = f"http://127.0.0.1:{addresses.sandbox_port}"
    return {
        "EVOLUTION_URL": sandbox,
        "META_GRAPH_URL": sandbox,
        "INSTAGRAM_GRAPH_URL": sandbox,
        "EVOLUTION_API_KEY": secrets["EVOLUTION_API_KEY"],
        "SANDBOX_API_KEY": secrets["EVOLUTION_API_KEY"],
    }


def manage(name: str, *arguments: str, env: Mapping[str, str], log: Path) -> Process:
    """A run of manage.py, not yet started."""
    argv = [paths.python(), "manage.py", *arguments]
    return Process(name, argv, log=log, env=env, cwd=paths.REPO, grace=GRACE.get(name, 5.0))


def processes(state: State, addresses: Addresses, env: Mapping[str, str]) -> list[Process]:
    """The processes of the product, not yet started, the sandbox (a stand-in for WhatsApp) first."""
    sandbox = ["--port", str(addresses.sandbox_port), "--state", str(state.root / "sandbox")]
    pace = ["--pair-after", "2", "--receipts-after", "0.3,0.9,1.8"]
    listen = ["--host", "127.0.0.1", "--port", str(addresses.web_port)]
    serving = ["--workers", "1", "--no-access-log", "--timeout-graceful-shutdown", "20"]
    celery = ["celery", "-A", "pilot"]
    schedule = ["--schedule", str(state.root / "beat-schedule")]
    modules = {
        "sandbox": ["sandbox", *sandbox, *pace],
        "web": ["uvicorn", "pilot.asgi:application", *listen, *serving],
        "beat": [*celery, "beat", *schedule, "-l", "INFO"],
    }
    own = {"web": {"PROMETHEUS_MULTIPROC_DIR": str(state.empty("metrics"))}}
    started = [_module(name, argv, state, {**env, **own.get(name, {})}) for name, argv in modules.items()]
    commands = {"worker": ["worker", "--name", WORKER_NAME], "consume": ["consume"]}
    return [
        *started,
        *(manage(name, *argv, env=env, log=state.log(name)) for name, argv in commands.items()),
    ]


def _module(name: str, argv: list[str], state: State, env: Mapping[str, str]) -> Process:
    command = [paths.python(), "-m", *argv]
    return Process(name, command, log=state.log(name), env=env, cwd=paths.REPO, grace=GRACE[name])
