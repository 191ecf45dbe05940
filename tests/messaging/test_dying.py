"""kill -9 at every step of a send. What the ledger says afterwards is what really went out."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.utils import timezone

from instances.models import Lane
from messaging import reconciling
from messaging.models import Message, MessageEvent, Status
from tests.messaging.sends import Sends
from tests.product.running import database_url
from tests.sandbox.emulator import eventually

WENT_OUT = {Status.SUBMITTED, Status.SENT, Status.DELIVERED, Status.READ}


def kill_at(step: str, message: Message, until: Any = None) -> None:
    """Lets a process die at the step; `until` says when the test has to kill it from outside."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.messaging.dying", step, str(message.instance_id)],
        env=os.environ | {"DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "pilot.settings"},
        cwd=django_settings.BASE_DIR,
    )
    if until:
        eventually(until, within=20)
        process.kill()
    assert process.wait(timeout=25) == -9


def recover(sends: Sends, message: Message) -> Message:
    """What the running product does within its lease and the look-ups after it."""
    after_lease = timezone.now() + django_settings.LEASE
    reconciling.release_expired_leases(now=after_lease)
    sends.run(message.instance)
    reconciling.look_up_unconfirmed(now=after_lease + timedelta(seconds=6))
    message.refresh_from_db()
    return message


@pytest.mark.parametrize(
    ("step", "sent_before", "statuses"),
    [
        ("before the claim commits", 0, WENT_OUT),
        ("after the claim", 0, {Status.UNCONFIRMED}),
        ("before the call", 0, {Status.UNCONFIRMED}),
        ("after the answer", 1, WENT_OUT),
        ("after settle", 1, WENT_OUT),
    ],
)
def test_pf_02_death_at_a_step_never_sends_twice(
    sends: Sends, step: str, sent_before: int, statuses: set[str]
) -> None:
    message = sends.message(sends.instance(), content={"text": step})
    kill_at(step, message)
    assert len(sends.texts()) == sent_before

    recover(sends, message)

    assert message.status in statuses
    assert len(sends.texts()) == (1 if statuses == WENT_OUT else 0)
    assert Lane.objects.get(instance=message.instance).in_flight == 0


def test_pf_02_death_between_acceptance_and_answer_is_found_out(sends: Sends) -> None:
    sends.emulator.arm("hang", accepted=True, times=1)
    message = sends.message(sends.instance(), content={"text": "aceita"})
    kill_at("no step of ours", message, until=sends.texts)

    recover(sends, message)

    assert message.status in WENT_OUT
    assert sends.texts() == ["aceita"]


def test_what_nobody_can_find_out_fails_in_the_end_and_says_so(sends: Sends) -> None:
    message = sends.message(sends.instance())
    kill_at("before the call", message)
    recover(sends, message)

    reconciling.look_up_unconfirmed(now=message.deliver_until + timedelta(minutes=1))

    message.refresh_from_db()
    assert (message.status, message.failure_code) == (Status.FAILED, "outcome_unknown")
    assert sends.texts() == []


def test_a_worker_that_comes_back_after_its_lease_brings_evidence(sends: Sends) -> None:
    """Its answer arrives when the message is already unconfirmed: accepted with this id is accepted."""
    message = sends.message(sends.instance(), content={"text": "devagar"})
    sends.emulator.arm("latency", seconds=1.5, times=1)
    sends.dispatcher.wake(message.instance_id)
    eventually(lambda: Message.objects.get(pk=message.pk).status == Status.SENDING)

    reconciling.release_expired_leases(now=timezone.now() + django_settings.LEASE)
    assert Message.objects.get(pk=message.pk).status == Status.UNCONFIRMED
    assert sends.dispatcher.idle(timeout=10)

    message.refresh_from_db()
    assert (message.status, sends.texts()) == (Status.SUBMITTED, ["devagar"])
    kinds = MessageEvent.objects.filter(message=message).order_by("id").values_list("kind", flat=True)
    assert list(kinds) == ["sending", "unconfirmed", "submitted"]
    assert Lane.objects.get(instance=message.instance).in_flight == 0
