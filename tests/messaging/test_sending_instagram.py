"""Whole sends to the emulated Instagram, under both of its hosts, and the webhooks that follow."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from accounts.models import Project
from instances import accounts, linking, meta_apps
from instances.models import Instance
from messaging import receiving
from messaging.composing import Submission, compose_all
from messaging.models import Message, ReceivedMessage
from messaging.numbers import InvalidNumber
from messaging.reconciling import resolve_unconfirmed
from tests.factories import make_key, make_project
from tests.messaging.sends import Sends
from tests.meta import SECRET
from tests.sandbox.emulator import eventually
from tests.sandbox.graph import GraphAccount
from webhooks.applying import apply_pending

ANA = "17841400000000001"
DAY = 86_400


class Ig:
    """An Instagram account whose webhooks come to this process."""

    def __init__(self, sends: Sends, url: str, settings: Any, page: str) -> None:
        accounts.forget()
        settings.META_GRAPH_URL = settings.INSTAGRAM_GRAPH_URL = sends.emulator.url
        self.sends = sends
        self.project: Project = make_project()
        self.account = GraphAccount(sends.emulator, "17800", kind="instagram", business_id=page or "none")
        self.instance: Instance = linking.link_instagram(
            tenant=self.project.tenant,
            name="insta",
            account_id="17800",
            page_id=page,
            token="token-17800",
            app_secret=SECRET,
            now=timezone.now(),
        )
        assert self.instance.app is not None
        hook = meta_apps.callback_url(self.instance.app).partition("/hooks/")[2]
        self.account.change(webhook=f"{url}/hooks/{hook}")

    def hear(self, **spec: Any) -> None:
        """Ana writes, and Pilot hears of it."""
        before = ReceivedMessage.objects.count()
        self.account.do("inbound", **{"from": ANA, "text": "oi", **spec})
        eventually(lambda: self.apply() and ReceivedMessage.objects.count() > before)

    def apply(self) -> bool:
        now = timezone.now()
        apply_pending(now=now)
        receiving.apply_parked(now=now)
        return True

    def send(self, content: dict[str, Any], to: str = ANA) -> Message:
        message = self.sends.message(self.instance, project=self.project, content=content, to=to)
        self.sends.run(self.instance)
        message.refresh_from_db()
        return message

    def reaches(self, message: Message, status: str) -> Message:
        def reached() -> bool:
            self.apply()
            message.refresh_from_db()
            return message.status == status

        eventually(reached, within=20)
        return message


@pytest.fixture(params=["", "99999"], ids=["own login", "by its page"])
def ig(sends: Sends, live_server: Any, settings: Any, request: Any) -> Ig:
    return Ig(sends, live_server.url, settings, request.param)


@pytest.fixture
def plain(sends: Sends, live_server: Any, settings: Any) -> Ig:
    ig = Ig(sends, live_server.url, settings, "")
    ig.hear()
    return ig


def test_answers_a_person_and_knows_when_it_was_seen(ig: Ig) -> None:
    ig.hear()

    message = ig.reaches(ig.send({"text": "olá"}), "read")

    assert message.recipient_id == ANA
    assert [entry["key_id"] for entry in ig.sends.emulator.ledger()] == [message.provider_message_id]
    eventually(lambda: ig.apply() and not ReceivedMessage.objects.filter(outgoing=True).exists())


def test_finds_a_lost_answer_by_the_echo(plain: Ig) -> None:
    plain.sends.emulator.arm("answer_lost", times=1)

    message = plain.send({"text": "olá"})
    assert message.status == "unconfirmed"
    resolve_unconfirmed(now=timezone.now())
    plain.reaches(message, "read")

    assert message.provider_message_id == plain.sends.emulator.ledger()[0]["key_id"]
    assert len(plain.sends.emulator.ledger()) == 1


def test_merges_an_echo_that_is_faster_than_the_answer(plain: Ig) -> None:
    plain.sends.emulator.arm("webhooks_before_answer")

    message = plain.send({"text": "olá"})

    plain.reaches(message, "read")
    eventually(lambda: plain.apply() and not ReceivedMessage.objects.filter(outgoing=True).exists())


def test_keeps_what_the_owner_wrote_in_the_app(plain: Ig) -> None:
    echo = {"mid": "m-app", "text": "aqui é a Bia", "is_echo": True}
    item = {"sender": {"id": "17800"}, "recipient": {"id": ANA}, "timestamp": 1, "message": echo}
    plain.account.do("webhook", object="instagram", entry=[{"id": "17800", "messaging": [item]}])

    eventually(lambda: plain.apply() and ReceivedMessage.objects.filter(outgoing=True).exists())
    assert ReceivedMessage.objects.get(outgoing=True).text == "aqui é a Bia"


def test_lets_a_person_answer_for_a_week_and_a_program_for_a_day(plain: Ig) -> None:
    plain.account.advance(2 * DAY)
    Instance.objects.filter(pk=plain.instance.pk).update(created_at=timezone.now() - timedelta(days=30))
    plain.instance.windows.update(received_at=timezone.now() - timedelta(days=2))

    program = plain.send({"text": "olá"})
    person = plain.send({"text": "olá", "human_agent": True})

    assert (program.status, program.failure_code) == ("failed", "window_closed")
    assert person.status in {"sent", "read"}
    assert plain.sends.emulator.ledger()[0]["body"]["tag"] == "HUMAN_AGENT"


def test_answers_a_comment_in_private_once(plain: Ig) -> None:
    comment = plain.account.do("comment", **{"from": ANA, "text": "preço?"})["id"]
    reply = {"text": "R$ 10", "comment": {"id": comment, "mode": "private"}}

    first, second = plain.send(reply), plain.send(reply)

    assert first.status in {"sent", "read"}
    assert (second.status, second.failure_code, second.attempts) == ("failed", "comment_answered", 0)
    assert [entry["kind"] for entry in plain.sends.emulator.ledger()] == ["private_reply"]


def test_tries_the_same_answer_to_a_comment_again(plain: Ig) -> None:
    comment = plain.account.do("comment", **{"from": ANA, "text": "preço?"})["id"]
    plain.sends.emulator.arm("graph_error", code=2, times=1)
    message = plain.send({"text": "R$ 10", "comment": {"id": comment, "mode": "private"}})
    assert message.status == "queued"

    Message.objects.filter(pk=message.pk).update(next_attempt_at=None)
    plain.sends.run(plain.instance)

    message.refresh_from_db()
    assert message.status in {"sent", "read"}


def test_does_not_answer_a_comment_of_last_week(plain: Ig) -> None:
    comment = plain.account.do("comment", **{"from": ANA, "text": "preço?"})["id"]
    eventually(lambda: plain.apply() and ReceivedMessage.objects.filter(kind="comment"))
    ReceivedMessage.objects.filter(kind="comment").update(at=timezone.now() - timedelta(days=7))

    message = plain.send({"text": "R$ 10", "comment": {"id": comment, "mode": "private"}})

    assert (message.status, message.failure_code) == ("failed", "window_closed")
    assert plain.sends.emulator.ledger() == []


def test_answers_a_comment_for_everybody_and_does_not_talk_to_itself(plain: Ig) -> None:
    comment = plain.account.do("comment", **{"from": ANA, "text": "preço?"})["id"]

    message = plain.send({"text": "R$ 10", "comment": {"id": comment, "mode": "public"}})

    assert message.status == "sent"
    eventually(lambda: plain.apply() and ReceivedMessage.objects.filter(kind="comment").exists())
    assert not ReceivedMessage.objects.filter(kind="comment", text="R$ 10", outgoing=False).exists()


def test_is_addressed_by_the_person_s_id_without_an_opt_in(plain: Ig) -> None:
    key, _raw = make_key(plain.project)
    now = timezone.now()

    def compose(to: str) -> Any:
        return compose_all([(key, Submission(to=to, content={"text": "olá"}, instance="insta"))], now=now)[0]

    assert compose(ANA).message.to == ANA
    assert isinstance(compose("+5511999990000"), InvalidNumber)
