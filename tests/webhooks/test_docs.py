"""What docs/webhooks.md promises: its receivers work, and the catalogue's page is the catalogue."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings

from tests.webhooks.receiver import eventually
from tests.webhooks.tellings import make_endpoint, tell
from webhooks import signing
from webhooks.management.commands.describe_webhooks import page
from webhooks.models import WebhookDelivery

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
@pytest.mark.parametrize("language", HERE)
def test_the_documented_receiver_takes_our_calls_and_no_others(language: str, tmp_path: Path) -> None:
    secret = signing.new_secret()
    with running(language, tmp_path, secret=secret) as port:
        ours = make_endpoint(
            url=f"http://127.0.0.1:{port}/", secrets=[{"secret": secret, "ends_at": None}], description="ours"
        )
        rotating = make_endpoint(
            ours.tenant,
            url=ours.url,
            secrets=[
                {"secret": signing.new_secret(), "ends_at": None},
                {"secret": secret, "ends_at": "2999-01-01T00:00:00+00:00"},
            ],
        )
        strange = make_endpoint(ours.tenant, url=ours.url)  # signs with a secret of its own
        tell(ours)
        eventually(lambda: not WebhookDelivery.objects.filter(status="pending").exists())

    ended = {row.endpoint_id: row for row in WebhookDelivery.objects.all()}
    assert ended[ours.pk].last_status_code in (200, 204)
    assert ended[rotating.pk].last_status_code in (200, 204)
    assert {entry["status"] for entry in ended[strange.pk].log} == {401}


def test_the_page_of_events_is_the_catalogue() -> None:
    assert (DOCS / "webhook-events.md").read_text() == page(), "run manage.py describe_webhooks"


def test_documents_a_receiver_in_each_language() -> None:
    assert all("webhook-signature" in snippet(name).lower().replace("_", "-") for name in RUNNERS)
