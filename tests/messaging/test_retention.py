"""Retention of messages: the row stays, its words and its timeline go, and never what somebody still needs."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.urls import reverse

from messaging import retention
from messaging.models import IdempotencyKey, Message, MessageEvent, ReceivedMessage
from pilot import maintenance
from pilot.maintenance import Step
from pilot.models import RetentionPlace, StreamPlace
from tests.factories import NOW, make_instance, make_message, make_project, make_tenant
from tests.members import member

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
OLD = NOW - 100 * DAY
STEPS: dict[str, Step] = {step.name: step for step in retention.STEPS}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "pause", lambda _seconds: None)


def go(name: str) -> int:
    total: Counter[str] = Counter()
    for batch in STEPS[name].batches(NOW):
        total.update(batch)
    return total[name]


def old_message(project: Any = None, **fields: Any) -> Message:
    values = {
        "created_at": OLD,
        "status": "delivered",
        "variables": {"nome": "Ana"},
        "metadata": {"order": "7"},
    }
    return make_message(project, **values | fields)


def text(message: Message) -> str:
    message.refresh_from_db()
    return str(message.content["text"])


# --- contents ---------------------------------------------------------------------------------------------


def test_blanks_what_an_old_message_said_and_keeps_the_rest() -> None:
    message = old_message()
    IdempotencyKey.objects.create(
        tenant=message.tenant, environment="live", key="k", body_digest="d", message=message
    )

    assert go("message_contents") == 1

    message.refresh_from_db()
    assert (message.content, message.variables) == (retention.BLANKED, {})
    assert (message.status, message.to, message.metadata) == ("delivered", "+5511999990000", {"order": "7"})
    assert IdempotencyKey.objects.get().message_id == message.pk


@pytest.mark.parametrize("status", ["queued", "sending", "unconfirmed"])
def test_keeps_what_still_has_to_go_out(status: str) -> None:
    message = old_message(status=status)

    assert go("message_contents") == 0
    assert text(message) == "Olá"


def test_keeps_what_a_worker_holds() -> None:
    message = old_message(lease_token=uuid4(), lease_until=NOW)

    go("message_contents")

    assert text(message) == "Olá"


def test_a_tenant_may_have_a_time_of_its_own() -> None:
    usual, longer, shorter, ever = (
        old_message(make_project(make_tenant(contents_days=days))) for days in (None, 120, 10, 0)
    )
    recent = old_message(shorter.project, created_at=NOW - 11 * DAY, environment="test")

    go("message_contents")

    assert [text(each) for each in (usual, longer, shorter, ever, recent)] == ["", "Olá", "", "Olá", ""]


def test_begins_where_it_ended() -> None:
    project = make_project()
    old_message(project)
    go("message_contents")
    before_the_place = old_message(project, created_at=OLD - DAY)
    newer = old_message(project, created_at=OLD + DAY)

    assert go("message_contents") == 1

    assert (text(before_the_place), text(newer)) == ("Olá", "")


def test_comes_back_for_one_that_had_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PAGE", 1)
    project = make_project()
    scheduled = old_message(project, status="queued", created_at=OLD)
    later = old_message(project, created_at=OLD + DAY)

    assert go("message_contents") == 1
    assert not RetentionPlace.objects.exists()
    Message.objects.filter(pk=scheduled.pk).update(status="delivered")

    assert go("message_contents") == 1
    assert (text(scheduled), text(later)) == ("", "")


def test_a_blanked_message_says_so_on_its_page() -> None:
    message = old_message()
    go("message_contents")

    page = member(message.tenant).get(reverse("dashboard:message", args=[message.pk])).content.decode()

    assert "deleted after the agreed time" in page


# --- timelines --------------------------------------------------------------------------------------------


def event(message: Message, **fields: Any) -> MessageEvent:
    return MessageEvent.objects.create(
        **{"message": message, "tenant": message.tenant, "kind": "sent", "at": OLD} | fields
    )


def test_deletes_a_timeline_that_every_reader_has_read() -> None:
    message = old_message()
    event(message, position=1)
    event(message, applied=False)
    unread, unnumbered, young = event(message, position=3), event(message), event(message, position=2, at=NOW)
    for reader, position in (("numbered", 3), ("announced", 2), ("tallied", 3)):
        StreamPlace.objects.create(name=f"messaging.messageevent.{reader}", position=position)

    assert go("message_events") == 2

    assert set(MessageEvent.objects.all()) == {unread, unnumbered, young}


def test_keeps_the_timeline_of_a_message_that_waits() -> None:
    """Why it has not gone out yet can always be seen."""
    event(old_message(status="queued"), position=1)
    StreamPlace.objects.create(name="messaging.messageevent.announced", position=9)

    assert go("message_events") == 0


def test_deletes_old_messages_of_people() -> None:
    instance = make_instance()
    for number, at in enumerate((NOW - 366 * DAY, NOW)):
        ReceivedMessage.objects.create(
            tenant=instance.tenant, instance=instance, provider_message_id=str(number), kind="text", at=at
        )

    assert go("received_messages") == 1
    assert ReceivedMessage.objects.get().at == NOW
