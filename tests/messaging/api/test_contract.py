"""The API keeps to its description, whatever is sent to it: schemathesis asks a running server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from messaging.models import Contact, Message
from tests import factories
from tests.webhooks.tellings import make_endpoint, tell
from tests.webs import running_web

CONFIG = Path(__file__).with_name("schemathesis.toml")
# For a longer run by hand: CONTRACT_EXAMPLES=100 pytest -s tests/messaging/api/test_contract.py
EXAMPLES = os.environ.get("CONTRACT_EXAMPLES", "1")
MARK = "zz-of-another-tenant"
NUMBER = "+5511988887777"


@pytest.fixture
def stranger(transactional_db: None) -> Message:
    """Another tenant with a row of each kind, all of which bear MARK."""
    project = factories.make_project(factories.make_tenant(name=MARK, slug=MARK), name=MARK, slug=MARK)
    instance = factories.make_instance(project.tenant, name=MARK)
    factories.make_template(project, name=MARK)
    factories.make_key(project, name=MARK)
    factories.make_opt_in(project.tenant, NUMBER, source=MARK)
    Contact.objects.create(tenant=project.tenant, number=NUMBER, name=MARK)
    tell(make_endpoint(project.tenant, project=project, description=MARK))
    return factories.make_message(project, instance, reference=MARK, content={"text": MARK})


@pytest.fixture
def web(stranger: Message, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    monkeypatch.setenv("API_KEY_RATE", "0")
    monkeypatch.setenv("API_TENANT_RATE", "0")
    key, raw = factories.make_sender()
    own = factories.make_project(key.tenant)
    monkeypatch.setenv("SACRIFICE", factories.make_key(own)[1])
    with running_web(raw) as client:
        yield client


@pytest.mark.timeout(3600)
def test_keeps_to_its_description(web: httpx.Client, stranger: Message, tmp_path: Path) -> None:
    traffic = tmp_path / "traffic.har"
    asked = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", CONFIG),
            *("run", f"{web.base_url}/api/schema", "-H", f"apikey: {web.headers['apikey']}"),
            *("--max-examples", EXAMPLES, "--seed", "1", "--generation-database", "none"),
            *("--report", "har", "--report-har-path", traffic, "--continue-on-failure", "--no-color"),
        ],
        cwd=tmp_path,
        check=False,
    )
    assert asked.returncode == 0, "see what schemathesis printed"
    seen = traffic.read_text()
    assert "/api/messages" in seen
    assert MARK not in seen
    assert stranger.pk not in seen
