"""A web process on the tests' database, asked over real HTTP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from django.conf import settings
from launcher.ports import free_port

from tests.sandbox.emulator import eventually


@contextmanager
def running_web(raw_key: str) -> Iterator[httpx.Client]:
    """uvicorn, and a client with the key that does not say which languages it likes."""
    from tests.product.running import environment

    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "pilot.asgi:application", "--port", str(port), "--no-access-log"],
        env=environment(),
        cwd=settings.BASE_DIR,
    )
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"apikey": raw_key}, timeout=20)
    try:
        eventually(lambda: _alive(client), within=20)
        yield client
    finally:
        client.close()
        process.terminate()
        process.wait(timeout=10)


def _alive(client: httpx.Client) -> bool:
    try:
        return client.get("/livez").is_success
    except httpx.HTTPError:
        return False
