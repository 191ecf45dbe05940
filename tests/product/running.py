"""The whole product as real processes, on the tests' database, with a Redis and a sandbox of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from django.conf import settings
from django.utils import timezone
from launcher import paths
from launcher.engines import Valkey
from launcher.ports import free_port
from launcher.processes import Process

from instances import connecting
from instances.models import DefaultInstance, EvolutionServer, Instance
from tests.factories import make_key, make_opt_in, make_project
from tests.sandbox.emulator import KEY, Emulator, eventually
from tests.sentinels import Sentinels

NUMBER = "+5511999990000"
PARTS: Mapping[str, list[str]] = {
    "web": ["uvicorn", "pilot.asgi:application", "--no-access-log", "--port"],
    "worker": ["manage.py", "worker", "--name", "w@test", "--threads", "8"],
    "beat": ["celery", "-A", "pilot", "beat"],
    "consume": ["manage.py", "consume"],
}


def forgetful(directory: Path) -> Valkey:
    """A Valkey that forgets everything when it stops."""
    return Valkey(directory / "valkey", appendonly=False)


class Product:
    """Web in `webs` processes, worker, beat and consume, with a Redis and nothing that restarts what ends."""

    def __init__(
        self,
        emulator: Emulator,
        redis: Callable[[Path], Valkey | Sentinels] = forgetful,
        *,
        webs: int = 1,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.env = dict(env or {})
        self.directory = Path(tempfile.mkdtemp(dir=os.environ.get("PILOT_TEST_ENGINES")))
        self.directory.chmod(0o755)
        self.emulator = emulator
        self.webs = webs
        self.metrics = self.directory / "metrics"
        self.metrics.mkdir()
        self.valkey = redis(self.directory)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.parts = {name: self._part(name) for name in PARTS}

    def start(self) -> None:
        self.valkey.start()
        for part in self.parts.values():
            part.start()
        eventually(self.healthy, within=60)

    def healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=2).is_success
        except httpx.HTTPError:
            return False

    def revive(self) -> list[str]:
        """Starts what ended, as whoever runs Pilot must. Returns the names."""
        ended = [part for part in self.parts.values() if not part.alive()]
        for part in ended:
            part.start()
        return [part.name for part in ended]

    def stop(self) -> None:
        for part in self.parts.values():
            part.request_stop()
        for part in self.parts.values():
            part.stop()
        self.valkey.stop()

    def logs(self) -> str:
        """The end of every part's log, for the message of a failing test."""
        return "\n".join(
            f"--- {name}\n{part.log.read_text(errors='replace')[-3000:]}" for name, part in self.parts.items()
        )

    def _part(self, name: str) -> Process:
        own: dict[str, str] = {}
        arguments = PARTS[name]
        if name == "web":
            arguments = [*arguments, str(self.port), "--workers", str(self.webs)]
            own = {"PROMETHEUS_MULTIPROC_DIR": str(self.metrics)}
        module = [] if arguments[0].endswith(".py") else ["-m"]
        if name == "beat":
            arguments = [*arguments, "--schedule", str(self.directory / "schedule")]
        return Process(
            name,
            [paths.python(), *module, *arguments],
            log=self.directory / f"{name}.log",
            env=environment()
            | {
                "REDIS_URL": self.valkey.url,
                "PUBLIC_URL": self.url,
                "WHATSAPP_QUEUE_WORKER_REFRESH_MS": "1000",
                "SEND_TIMEOUT_SECONDS": "5",
            }
            | own
            | self.env,
            cwd=paths.REPO,
        )


def environment() -> dict[str, str]:
    """What a process of the product needs to run on the tests' database."""
    return os.environ | {"DATABASE_URL": database_url(), "ALLOWED_HOSTS": "127.0.0.1"}


def database_url() -> str:
    """The address of the database that the tests run on."""
    database: dict[str, Any] = settings.DATABASES["default"]
    login = f"{quote(database['USER'])}:{quote(database['PASSWORD'])}"
    return f"postgres://{login}@{database['HOST']}:{database['PORT']}/{database['NAME']}"


@dataclass
class Customer:
    """A tenant with an open instance in the sandbox and a key."""

    product: Product
    instance: Instance
    api: httpx.Client

    def post(self, text: str, **fields: Any) -> httpx.Response:
        return self.api.post("/api/messages", json={"to": NUMBER, "text": text, **fields})

    def message(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(f"/api/messages/{key}").json()
        return found

    def reaches(self, key: str, *statuses: str, within: float = 20) -> dict[str, Any]:
        """Waits until the message has one of the statuses."""
        try:
            eventually(lambda: self.message(key)["status"] in statuses, within=within)
        except AssertionError as error:
            raise AssertionError(f"{self.message(key)}\n{self.product.logs()}") from error
        return self.message(key)


def make_customer(product: Product, monkey_settings: Any) -> Customer:
    """Creates and pairs an instance over HTTP, as the dashboard would; the news that it is open comes by webhook."""
    monkey_settings.PUBLIC_URL = product.url
    project = make_project()
    EvolutionServer.objects.create(name="sandbox", url=product.emulator.url, api_key=KEY)
    instance = connecting.create(tenant=project.tenant, name="loja", now=timezone.now())
    fast = {"pace_least_seconds": 0, "pace_most_seconds": 0, "urgent_gap_seconds": 0, "typing_ms": 0}
    Instance.objects.filter(pk=instance.pk).update(**fast)
    DefaultInstance.objects.create(project=project, instance=instance)
    product.emulator.do(instance.provider_name, "pair")
    eventually(lambda: Instance.objects.get(pk=instance.pk).status == "open", within=20)
    make_opt_in(project.tenant, NUMBER)
    _key, raw = make_key(project, now=timezone.now() - timedelta(minutes=1))
    return Customer(
        product, instance, httpx.Client(base_url=product.url, headers={"apikey": raw}, timeout=15)
    )
