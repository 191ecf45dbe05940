"""Whole sends to the emulated Cloud API: claim, gates, call, settlement, and the webhooks that follow."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import Project
from instances import accounts, meta_apps
from instances.models import Instance
from messaging.models import Message, MessageEvent, Window
from messaging.reconciling import resolve_unconfirmed
from tests.factories import make_message, make_project
from tests.messaging.contents import CONTENTS
from tests.messaging.sends import Sends, timeline
from tests.meta import SECRET, make_meta_instance
from tests.providers.meta_schema import complaints
from tests.sandbox.emulator import eventually
from tests.sandbox.graph import GraphAccount
from webhooks.applying import apply_pending

ANA = "+5511999990000"


class Meta:
    """A number on the emulated Cloud API whose webhooks come to this process."""

    def __init__(self, sends: Sends, url: str) -> None:
        accounts.forget()
        self.sends = sends
        self.instance: Instance = make_meta_instance(
            account_id="111",
            created_at=timezone.now(),
            credentials={"token": "token-111", "host": sends.emulator.url},
            messages_per_second=1000,
        )
        self.project: Project = make_project(self.instance.tenant)
        assert self.instance.app is not None
        hook = meta_apps.callback_url(self.instance.app).partition("/hooks/")[2]
        self.account = GraphAccount(
            sends.emulator, "111", webhook=f"{url}/hooks/{hook}", app_secret=SECRET, window="off"
        )

    def send(self, content: dict[str, Any] | None = None, **fields: Any) -> Message:
        message = self.accept(content, **fields)
        self.sends.run(self.instance)
        message.refresh_from_db()
        return message

    def accept(self, content: dict[str, Any] | None = None, **fields: Any) -> Message:
        return self.sends.message(
            self.instance, project=self.project, content=content or {"text": "Olá"}, **fields
        )

    def reaches(self, message: Message, status: str) -> Message:
        """Applies what was posted until the message has the status."""

        def reached() -> bool:
            apply_pending(now=timezone.now())
            message.refresh_from_db()
            return message.status == status

        eventually(reached, within=20)
        return message


@pytest.fixture
def meta(sends: Sends, live_server: Any) -> Meta:
    return Meta(sends, live_server.url)


def test_hands_a_message_over_and_follows_it_until_it_is_read(meta: Meta) -> None:
    message = meta.send()
    assert (message.status, message.recipient_id) in {
        ("submitted", "5511999990000"),
        ("sent", "5511999990000"),
    }

    meta.reaches(message, "read")

    (entry,) = meta.sends.emulator.ledger()
    assert entry["key_id"] == message.provider_message_id
    assert entry["body"]["biz_opaque_callback_data"] == message.pk
    assert timeline(message)[0] == "sending"
    assert {"submitted", "sent", "delivered", "read"} <= set(timeline(message))


def test_sends_every_kind_as_the_specification_wants_it(meta: Meta) -> None:
    files = ("image", "video", "audio", "voice", "document", "sticker")
    plain = {name: content for name, content in CONTENTS.items() if "template" not in name}
    linked = {
        name: {**content, "link": "https://a.example/f"} if name in files else content
        for name, content in plain.items()
    }
    for content in linked.values():
        content.pop("media_id", None) if content.get("link") else None
        meta.accept(content)

    while Message.objects.filter(status="queued").exists():
        meta.sends.run(meta.instance)

    assert set(Message.objects.values_list("status", flat=True)) <= {"submitted", "sent"}
    bodies = [entry["body"] for entry in meta.sends.emulator.ledger()]
    assert len(bodies) == len(linked)
    assert [complaints(body) for body in bodies] == [[]] * len(bodies)


def test_finds_a_lost_answer_by_the_status_that_carries_our_id(meta: Meta) -> None:
    meta.sends.emulator.arm("answer_lost", times=1)

    message = meta.send()
    assert (message.status, message.provider_message_id) == ("unconfirmed", None)
    resolve_unconfirmed(now=timezone.now())
    meta.reaches(message, "read")

    assert message.provider_message_id == meta.sends.emulator.ledger()[0]["key_id"]
    assert len(meta.sends.emulator.ledger()) == 1
    assert timeline(message)[:2] == ["sending", "unconfirmed"]


@pytest.mark.parametrize("fault", [{"status": 502, "accepted": True}, {"code": 999999, "status": 500}])
def test_never_sends_again_after_an_answer_that_says_nothing(meta: Meta, fault: dict[str, Any]) -> None:
    meta.sends.emulator.arm("graph_error", times=1, **fault)

    message = meta.send()

    assert message.status == "unconfirmed"
    meta.sends.run(meta.instance)
    assert len(meta.sends.emulator.requests()) == 1


def test_takes_a_status_that_is_faster_than_the_answer(meta: Meta) -> None:
    meta.sends.emulator.arm("webhooks_before_answer")
    meta.sends.emulator.arm("latency", seconds=0.05)

    message = meta.send()

    meta.reaches(message, "read")
    assert message.sent_at is not None
    assert message.provider_message_id == meta.sends.emulator.ledger()[0]["key_id"]


def test_believes_a_window_closed_that_meta_closes_after_accepting(meta: Meta) -> None:
    meta.account.change(window="async")

    message = meta.reaches(meta.send(), "failed")

    assert message.failure_code == "window_closed"
    assert Window.objects.get(instance=meta.instance).refused_by == "window_closed"
    second = meta.send()
    assert (second.status, second.failure_code, second.attempts) == ("failed", "window_closed", 0)
    assert len(meta.sends.emulator.ledger()) == 1


def test_believes_a_window_closed_that_meta_closes_at_once(meta: Meta) -> None:
    meta.account.change(window="sync")

    message = meta.send()

    assert (message.status, message.failure_code) == ("failed", "window_closed")
    assert message.failure_detail.startswith("131047: Message failed to send because more than 24 hours")
    assert Window.objects.get(instance=meta.instance).closed_at is not None


def test_writes_again_as_soon_as_the_person_has_written(meta: Meta) -> None:
    meta.account.change(window="sync")
    meta.send()
    meta.account.do("inbound", **{"from": ANA, "text": "oi", "at": timezone.now().timestamp() + 5})
    eventually(lambda: apply_pending(now=timezone.now()) and Window.objects.filter(received_at__isnull=False))

    assert meta.send().status in {"submitted", "sent"}


def test_waits_without_an_attempt_while_the_token_is_no_good(meta: Meta) -> None:
    meta.account.change(token="another")

    message = meta.send()

    assert (message.status, message.attempts) == ("queued", 0)
    meta.instance.refresh_from_db()
    assert (meta.instance.status, meta.instance.status_reason) == ("degraded", "provider_misconfigured")


def test_tries_again_what_meta_did_not_take(meta: Meta) -> None:
    meta.sends.emulator.arm("graph_error", code=131016, times=1)

    message = meta.send()

    assert (message.status, message.attempts) == ("queued", 1)
    assert message.next_attempt_at is not None
    event = MessageEvent.objects.get(message=message, kind="queued")
    assert event.detail["reason"].startswith("131016")


def test_keeps_hundreds_in_flight_on_one_number(meta: Meta) -> None:
    meta.sends.emulator.arm("latency", seconds=0.2)
    Instance.objects.filter(pk=meta.instance.pk).update(concurrency=200)
    meta.account.change(messages_per_second=1000)
    for n in range(120):
        make_message(
            meta.project,
            meta.instance,
            to=f"+55119{n:08}",
            created_at=timezone.now(),
            deliver_until=timezone.now() + timedelta(minutes=5),
        )

    meta.sends.run(meta.instance)
    eventually(lambda: not Message.objects.filter(status__in=["queued", "sending"]).exists(), within=60)

    assert len(meta.sends.emulator.ledger()) == 120
    spans = [(each["at"], each["at"] + each["seconds"]) for each in meta.sends.emulator.requests()]
    at_once = max(sum(start <= moment < end for start, end in spans) for moment, _end in spans)
    assert at_once >= 10


def test_looks_at_the_window_again_at_the_moment_of_the_call(meta: Meta, settings: Any) -> None:
    """Showing that somebody is typing takes its time, and the window closes meanwhile."""
    settings.WINDOW_MARGIN = timedelta()
    heard = meta.account.do("inbound", **{"from": ANA, "text": "oi"})["id"]
    since = timezone.now() - timedelta(hours=24) + timedelta(seconds=3)
    Window.objects.create(
        instance=meta.instance, address="+551199990000", received_at=since, received_id=heard
    )
    long_ago = timezone.now() - timedelta(days=30)
    Instance.objects.filter(pk=meta.instance.pk).update(created_at=long_ago, typing_ms=1000)
    meta.sends.emulator.arm("latency", seconds=4, times=1)

    message = meta.send()

    assert (message.status, message.failure_code) == ("failed", "window_closed")
    assert timeline(message) == ["sending", "failed"]
    assert meta.sends.emulator.ledger() == []
