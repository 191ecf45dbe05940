"""The command that shows an operator whether alerts arrive."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from pilot.alerts import open_subjects
from tests.factories import make_tenant
from tests.members import make_user
from tests.providers.peer import answer

pytestmark = pytest.mark.django_db


def test_sends_through_every_channel_and_leaves_nothing_open(peer: Any, settings: Any) -> None:
    server, out = peer(answer(b"{}")), StringIO()
    settings.PUSHOVER_URL, settings.PUSHOVER_TOKEN, settings.PUSHOVER_USER = server.url, "t", "u"
    settings.EMAIL_URL = "smtp://localhost"
    tenant = make_tenant(slug="loja")
    make_user(tenant, email="dona@example.com")

    call_command("send_test_alert", "--tenant", "loja", stdout=out)

    assert out.getvalue().splitlines() == ["pushover: ok", "member_email to dona@example.com: ok"]
    assert len(server.requests) == 1
    assert not open_subjects("test")


def test_says_which_channel_failed(peer: Any, settings: Any) -> None:
    server, out = peer(answer(b"", status="400 Bad Request")), StringIO()
    settings.PUSHOVER_URL, settings.PUSHOVER_TOKEN, settings.PUSHOVER_USER = server.url, "t", "u"

    with pytest.raises(CommandError, match="Not everybody"):
        call_command("send_test_alert", stdout=out)

    assert out.getvalue() == "pushover: HTTP 400\n"


@pytest.mark.parametrize(
    ("arguments", "says"), [([], "No channel is configured"), (["--tenant", "x"], "There is no tenant 'x'")]
)
def test_says_what_is_missing(arguments: list[str], says: str) -> None:
    with pytest.raises(CommandError, match=says):
        call_command("send_test_alert", *arguments)
