"""What docs/webhooks.md promises: its receivers work, and the catalogue's page is the catalogue."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from django.conf import settings

from tests.factories import make_tenant
from tests.webhooks.receiver import eventually
from tests.webhooks.tellings import make_endpoint, tell
from webhooks import signing
from webhooks.management.commands.describe_webhooks import page
from webhooks.models import WebhookDelivery, WebhookEndpoint

DOCS = Path(settings.BASE_DIR) / "docs"
# What runs a receiver, by the language of its block; {file} and {port} are filled in.
RUNNERS = {
    "python": ([sys.executable, "{file}"], ".py"),
    "js": (["node", "{file}"], ".js"),
    "php": (["php", "-S", "127.0.0.1:{port}", "{file}"], ".php"),
}
HERE = [language for language, (command, _suffix) in RUNNERS.items() if shutil.which(command[0])]


def snippet(language: str) -> str:
    (block,) = re.findall(rf"```{language}\n(.*?)```", (DOCS / "webhooks.md").read_text(), re.DOTALL)
    return str(block)


@contextmanager
def running(language: str, folder: Path, *, secret: str) -> Iterator[int]:
    """The documented receiver as a process; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command, suffix = RUNNERS[language]
    file = folder / f"receiver{suffix}"
    file.write_text(snippet(language))
    process = subprocess.Popen(
        [word.replace("{file}", str(file)).replace("{port}", str(port)) for word in command],
        env=os.environ | {"PORT": str(port), "WEBHOOK_SECRET": secret},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: _listens(port))
        yield port
    finally:
        process.kill()
        process.wait(timeout=10)


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.usefixtures("sender")
def test_the_documented_receivers_take_our_calls_and_no_others(tmp_path: Path) -> None:
    secret, tenant = signing.new_secret(), make_tenant()
    with ExitStack() as stack:
        for language in HERE:
            port = stack.enter_context(running(language, tmp_path, secret=secret))
            for secrets in _secrets(secret).values():
                make_endpoint(tenant, url=f"http://127.0.0.1:{port}/", description=language, secrets=secrets)
        tell(WebhookEndpoint.objects.earliest("id"))
        eventually(lambda: not WebhookDelivery.objects.filter(status="pending").exists(), within=30)

    for row in WebhookDelivery.objects.select_related("endpoint"):
        (kind,) = [name for name, secrets in _secrets(secret).items() if secrets == row.endpoint.secrets]
        answers = {entry["status"] for entry in row.log}
        assert answers <= ({401} if kind == "strange" else {200, 204}), (row.endpoint.description, kind)
        assert answers


STRANGE, NEW = signing.new_secret(), signing.new_secret()


def _secrets(secret: str) -> dict[str, list[dict[str, str | None]]]:
    """What an endpoint signs with, when the receiver knows `secret`."""
    return {
        "known": [{"secret": secret, "ends_at": None}],
        "rotating": [
            {"secret": NEW, "ends_at": None},
            {"secret": secret, "ends_at": "2999-01-01T00:00:00+00:00"},
        ],
        "strange": [{"secret": STRANGE, "ends_at": None}],
    }


def test_the_page_of_events_is_the_catalogue() -> None:
    assert (DOCS / "webhook-events.md").read_text() == page(), "run manage.py describe_webhooks"


def test_documents_a_receiver_in_each_language() -> None:
    assert all("webhook-signature" in snippet(name).lower().replace("_", "-") for name in RUNNERS)
